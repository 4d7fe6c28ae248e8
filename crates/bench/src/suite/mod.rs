//! Owns `flintkv bench-suite`: every figure that the project holds itself to, each with its target.
