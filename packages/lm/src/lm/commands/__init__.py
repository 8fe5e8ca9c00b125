"""The commands of `lm`, a file each: `cli` has the list of them, `options` what they share."""
