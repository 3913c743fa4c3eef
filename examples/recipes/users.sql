-- The table of the application in every recipe.

CREATE TABLE users (id serial PRIMARY KEY, email text NOT NULL UNIQUE);
