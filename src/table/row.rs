//! How a program sees a row: an array of cells, a vector of cells, or a struct of its own.

use super::schema::{Kind, Timestamp};
use super::width::{Dynamic, Fixed, Width};

/// A type that holds one row of a table.
///
/// `[u64; N]` and `Vec<u64>` hold the cells of any table, of a width known to the compiler or not;
/// [`row!`](crate::row) makes a struct with named fields a row.
pub trait Row: Clone + Send + Sync + 'static {
    /// Whether the width is known to the compiler.
    type Width: Width;

    /// Names and kinds of the columns, in order; `None` where any column will do.
    fn fields() -> Option<&'static [(&'static str, Kind)]>;

    /// Columns of this row.
    fn columns(&self) -> usize;

    /// Writes the row's cells; `cells` has the table's width, which is the row's.
    fn store(&self, cells: &mut [u64]);

    /// Reads a row from its cells.
    fn load(cells: &[u64]) -> Self;

    /// Looks at a row in its cells, where that needs no copy.
    #[inline(always)]
    fn view<T>(cells: &[u64], look: impl FnOnce(&Self) -> T) -> T {
        look(&Self::load(cells))
    }
}

impl<const N: usize> Row for [u64; N] {
    type Width = Fixed<N>;

    fn fields() -> Option<&'static [(&'static str, Kind)]> {
        None
    }

    #[inline(always)]
    fn columns(&self) -> usize {
        N
    }

    #[inline(always)]
    fn store(&self, cells: &mut [u64]) {
        cells.copy_from_slice(self);
    }

    #[inline(always)]
    fn load(cells: &[u64]) -> Self {
        let mut row = [0; N];
        row.copy_from_slice(cells);
        row
    }

    #[inline(always)]
    fn view<T>(cells: &[u64], look: impl FnOnce(&Self) -> T) -> T {
        match cells.try_into() {
            Ok(row) => look(row),
            // Not this width: `load` says so.
            Err(_) => look(&Self::load(cells)),
        }
    }
}

impl Row for Vec<u64> {
    type Width = Dynamic;

    fn fields() -> Option<&'static [(&'static str, Kind)]> {
        None
    }

    fn columns(&self) -> usize {
        self.len()
    }

    fn store(&self, cells: &mut [u64]) {
        cells.copy_from_slice(self);
    }

    fn load(cells: &[u64]) -> Self {
        cells.to_vec()
    }
}

/// A field type of a [`row!`](crate::row) struct: eight bytes of one [`Kind`].
pub trait Cell: Copy {
    /// The kind of column that holds it.
    const KIND: Kind;
    /// Its eight bytes.
    fn to_cell(self) -> u64;
    /// The value of eight bytes; any eight bytes are one.
    fn from_cell(cell: u64) -> Self;
}

impl Cell for u64 {
    const KIND: Kind = Kind::U64;

    #[inline(always)]
    fn to_cell(self) -> u64 {
        self
    }

    #[inline(always)]
    fn from_cell(cell: u64) -> Self {
        cell
    }
}

impl Cell for i64 {
    const KIND: Kind = Kind::I64;

    #[inline(always)]
    fn to_cell(self) -> u64 {
        self.cast_unsigned()
    }

    #[inline(always)]
    fn from_cell(cell: u64) -> Self {
        cell.cast_signed()
    }
}

impl Cell for f64 {
    const KIND: Kind = Kind::F64;

    #[inline(always)]
    fn to_cell(self) -> u64 {
        self.to_bits()
    }

    #[inline(always)]
    fn from_cell(cell: u64) -> Self {
        f64::from_bits(cell)
    }
}

impl Cell for Timestamp {
    const KIND: Kind = Kind::Timestamp;

    #[inline(always)]
    fn to_cell(self) -> u64 {
        self.micros.cast_unsigned()
    }

    #[inline(always)]
    fn from_cell(cell: u64) -> Self {
        Self {
            micros: cell.cast_signed(),
        }
    }
}

/// Declares a struct whose fields are the columns of a table, and makes it a [`Row`].
///
/// Fields are `u64`, `i64`, `f64` or [`Timestamp`], eight bytes each.
///
/// ```
/// ancile::row! {
///     /// An account.
///     pub struct Account {
///         /// Who owns it.
///         pub owner: u64,
///         /// In cents.
///         pub balance: i64,
///     }
/// }
/// let engine = ancile::Engine::builder().shards(1).arena_bytes(64 << 20).build()?;
/// let accounts = engine.create_table::<Account>("accounts", ancile::Schema::of::<Account>())?;
/// let mut session = engine.session()?;
/// use ancile::Verbs;
/// let id = session.insert(&accounts, &Account { owner: 7, balance: -250 })?;
/// assert_eq!(session.select(&accounts, id)?.unwrap().balance, -250);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! row {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident: $kind:ty),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $kind),+
        }

        impl $crate::Row for $name {
            type Width = $crate::Fixed<{ [$(stringify!($field)),+].len() }>;

            fn fields() -> Option<&'static [(&'static str, $crate::Kind)]> {
                Some(&[$((stringify!($field), <$kind as $crate::Cell>::KIND)),+])
            }

            #[inline(always)]
            fn columns(&self) -> usize {
                [$(stringify!($field)),+].len()
            }

            #[inline(always)]
            fn store(&self, cells: &mut [u64]) {
                cells.copy_from_slice(&[$($crate::Cell::to_cell(self.$field)),+]);
            }

            #[inline(always)]
            fn load(cells: &[u64]) -> Self {
                let mut cells = cells.iter().copied();
                Self { $($field: $crate::Cell::from_cell(cells.next().unwrap_or_default())),+ }
            }
        }
    };
}
