//! Text to plan: the grammars that people type, and every diagnostic
