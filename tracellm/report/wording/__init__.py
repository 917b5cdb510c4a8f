"""Short wording that several reports share: safe text, quantities, names of calls and steps, changes, problems."""
