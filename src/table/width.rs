//! How many cells a row has: known to the compiler, or only to the table.

/// The number of cells of a row; a row type chooses one of the two forms.
///
/// With [`Fixed`] every copy of a row is a handful of vector moves; with [`Dynamic`] it is a call.
pub trait Width: Copy + Send + Sync + 'static {
    /// Cells of a row.
    fn cells(self) -> usize;

    /// The width of so many cells, if it can be of this form.
    fn of(cells: usize) -> Option<Self>;
}

/// `N` cells, known to the compiler.
#[derive(Clone, Copy, Debug)]
pub struct Fixed<const N: usize>;

/// A number of cells known only when the table is opened.
#[derive(Clone, Copy, Debug)]
pub struct Dynamic(pub(crate) usize);

impl<const N: usize> Width for Fixed<N> {
    #[inline(always)]
    fn cells(self) -> usize {
        N
    }

    #[inline(always)]
    fn of(cells: usize) -> Option<Self> {
        (cells == N).then_some(Self)
    }
}

impl Width for Dynamic {
    #[inline(always)]
    fn cells(self) -> usize {
        self.0
    }

    fn of(cells: usize) -> Option<Self> {
        Some(Self(cells))
    }
}
