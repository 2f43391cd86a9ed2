//! Parts that misbehave.
