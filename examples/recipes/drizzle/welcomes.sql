-- What the relay writes: one row for each user that it has welcomed.

CREATE TABLE welcomes (email text NOT NULL);
