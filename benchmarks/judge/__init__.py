"""Made-up labeled clustering problems, from which a judge of partitions learns."""
