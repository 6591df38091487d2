"""What must hold: models of partitions and groups, histories, checkers."""
