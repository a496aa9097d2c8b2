"""campaign.toml: its model, its strict reader and the places of its keys."""
