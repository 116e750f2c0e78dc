//! The pure pipeline: stages, schedules, filler planning
