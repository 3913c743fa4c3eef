// Applies and then validates the migrations of a directory: java Migrate.java URL USER DIRECTORY.

import org.flywaydb.core.Flyway;

class Migrate {
  public static void main(String[] arguments) {
    var flyway = Flyway.configure()
        .dataSource(arguments[0], arguments[1], "")
        .locations("filesystem:" + arguments[2])
        .load();
    System.out.println("applied " + flyway.migrate().migrationsExecuted);
    flyway.validate();
  }
}
