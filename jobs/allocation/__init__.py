"""The parent: what happens in an allocation around its measurements and cases, from private copies to receipts."""
