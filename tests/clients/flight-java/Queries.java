// The JDBC driver of Arrow Flight SQL: statements, prepared and not, what there is, errors. Ends with a status other than 0 where something
// is not as it should be.

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

public class Queries {
    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:arrow-flight-sql://127.0.0.1:" + arguments[0] + "/?useEncryption=false";
        try (Connection connection = DriverManager.getConnection(url)) {
            statements(connection);
            prepared(connection);
            whatThereIs(connection);
        }
        // Headers are settings.
        try (Connection connection = DriverManager.getConnection(url + "&x-oribi-search-path=shop")) {
            same("a setting", "[[3]]", rows(connection, "select count(*) from orders"));
        }
    }

    static void statements(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("create schema shop");
            statement.executeUpdate(
                    "create table shop.orders (id bigint primary key, name text, total numeric(10,2) not null, day date, at timestamp)");
            same("rows inserted", 2, statement.executeUpdate("insert into shop.orders values "
                    + "(1, 'one', 1.25, '2024-02-29', '2024-02-29 23:59:59.123'), (2, null, 2.5, null, null)"));
            same("rows updated", 1, statement.executeUpdate("update shop.orders set name = 'two' where id = 2"));
        }
        same("rows", "[[1, one, 1.25, 2024-02-29, 2024-02-29 23:59:59.123], [2, two, 2.50, null, null]]",
                rows(connection, "select * from shop.orders order by id"));
        try {
            rows(connection, "select * from nothing");
            throw new AssertionError("there is no such table");
        } catch (SQLException error) {
            same("a SQLSTATE", true, error.getMessage().contains("42P01"));
        }
    }

    static void prepared(Connection connection) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement("insert into shop.orders (id, total) values ($1, $2)")) {
            insert.setLong(1, 3);
            insert.setBigDecimal(2, new BigDecimal("7.75"));
            same("rows inserted", 1, insert.executeUpdate());
        }
        try (PreparedStatement select = connection.prepareStatement("select total from shop.orders where id = $1")) {
            for (long id : new long[] {3, 1}) {
                select.setLong(1, id);
                try (ResultSet result = select.executeQuery()) {
                    same("a row", true, result.next());
                    same("a number", id == 3 ? "7.75" : "1.25", result.getBigDecimal(1).toString());
                    same("another row", false, result.next());
                }
            }
        }
    }

    static void whatThereIs(Connection connection) throws SQLException {
        DatabaseMetaData metadata = connection.getMetaData();
        same("the product", "Oribi", metadata.getDatabaseProductName());
        same("schemas", true, column(metadata.getSchemas(), "TABLE_SCHEM").contains("shop"));
        same("tables", "[orders]", column(metadata.getTables(null, "shop", "%", null), "TABLE_NAME").toString());
        same("columns", "[id, name, total, day, at]",
                column(metadata.getColumns(null, "shop", "orders", "%"), "COLUMN_NAME").toString());
        same("nullable", "[NO, YES, NO, YES, YES]",
                column(metadata.getColumns(null, "shop", "orders", "%"), "IS_NULLABLE").toString());
        same("keys", "[id]", column(metadata.getPrimaryKeys(null, "shop", "orders"), "COLUMN_NAME").toString());
    }

    static List<String> column(ResultSet result, String name) throws SQLException {
        List<String> values = new ArrayList<>();
        while (result.next()) {
            values.add(result.getString(name));
        }
        result.close();
        return values;
    }

    static String rows(Connection connection, String sql) throws SQLException {
        List<List<String>> rows = new ArrayList<>();
        try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery(sql)) {
            int columns = result.getMetaData().getColumnCount();
            while (result.next()) {
                List<String> row = new ArrayList<>();
                for (int column = 1; column <= columns; column++) {
                    row.add(result.getString(column));
                }
                rows.add(row);
            }
        }
        return rows.toString();
    }

    static void same(String what, Object expected, Object actual) {
        if (!expected.equals(actual)) {
            throw new AssertionError(what + ": " + actual + " instead of " + expected);
        }
    }
}
