"""What an agent keeps: its ledger of memories, their images and their history."""
