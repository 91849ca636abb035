//! Tests of the whole room: a toy database over the simulated disk, and the real one.

mod exhaustive;
mod faults;
mod files;
mod hostile;
mod model;
mod mutants;
mod promises;
mod random;
mod toy;
