//! Real time: workers and pacers that drive the engine over live ports
