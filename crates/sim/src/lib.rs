//! Virtual time: captures, model wires and their driver
