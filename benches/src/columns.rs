//! From a number of columns to a type: rows have their width at compile time.

/// Widths for which the benches are compiled.
pub const WIDTHS: [usize; 6] = [1, 4, 10, 16, 25, 50];

/// Runs `$body` with `$width` as a constant equal to `$columns`; an error for widths not compiled.
#[macro_export]
macro_rules! with_columns {
    ($columns:expr, $width:ident => $body:expr) => {
        $crate::with_columns!(@match $columns, $width => $body; 1 4 10 16 25 50)
    };
    (@match $columns:expr, $width:ident => $body:expr; $($value:literal)+) => {
        match $columns {
            $($value => {
                const $width: usize = $value;
                $body
            })+
            other => Err($crate::failure::Failure::new(format!(
                "no bench is compiled for {other} columns; there are {:?}",
                $crate::columns::WIDTHS
            ))),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::WIDTHS;
    use crate::failure::Failure;

    #[test]
    fn every_listed_width_is_compiled_and_no_other() {
        for columns in 1..=64_usize {
            let found: Result<usize, Failure> = with_columns!(columns, N => Ok(N));
            match found {
                Ok(width) => assert!(width == columns && WIDTHS.contains(&columns)),
                Err(_) => assert!(!WIDTHS.contains(&columns)),
            }
        }
    }
}
