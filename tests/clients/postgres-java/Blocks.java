// Transactions as programs of Java have them: pgjdbc without autocommit, statements in batches, savepoints, rows locked before they
// are changed. Ends with a status other than 0 where something is not as it should be.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.Properties;

public class Blocks {
    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/oribi";
        for (String mode : new String[] {"simple", "extended", "extendedForPrepared", "extendedCacheEverything"}) {
            Properties properties = new Properties();
            properties.setProperty("user", "oribi");
            properties.setProperty("preferQueryMode", mode);
            properties.setProperty("prepareThreshold", "1");
            try (Connection connection = DriverManager.getConnection(url, properties);
                    Connection other = DriverManager.getConnection(url, properties)) {
                blocks(connection, other, mode);
            }
        }
    }

    static void blocks(Connection connection, Connection other, String mode) throws SQLException {
        execute(connection, "drop table if exists jdbc");
        execute(connection, "create table jdbc (id bigint primary key, n bigint)");
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement("insert into jdbc values (?, ?)")) {
            for (int id = 1; id <= 10; id++) {
                insert.setLong(1, id);
                insert.setLong(2, 10 * id);
                insert.addBatch();
            }
            insert.executeBatch();
        }
        same(mode, 550, number(connection, "select sum(n) from jdbc"));
        same(mode, 0, number(other, "select count(*) from jdbc"));
        connection.commit();
        same(mode, 10, number(other, "select count(*) from jdbc"));

        execute(connection, "update jdbc set n = n + 1 where id = 1");
        Savepoint savepoint = connection.setSavepoint();
        try {
            execute(connection, "insert into jdbc values (1, 0)");
            throw new IllegalStateException(mode + ": a key came twice");
        } catch (SQLException refused) {
            same(mode, "23505", refused.getSQLState());
        }
        connection.rollback(savepoint);
        same(mode, 11, number(connection, "select n from jdbc where id = 1"));
        connection.rollback();
        same(mode, 10, number(connection, "select n from jdbc where id = 1"));
        connection.commit();

        connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
        same(mode, 20, number(connection, "select n from jdbc where id = 2"));
        execute(other, "update jdbc set n = 21 where id = 2");
        same(mode, 20, number(connection, "select n from jdbc where id = 2"));
        try {
            execute(connection, "update jdbc set n = n + 1 where id = 2");
            throw new IllegalStateException(mode + ": an update was lost");
        } catch (SQLException refused) {
            same(mode, "40001", refused.getSQLState());
        }
        connection.rollback();
        connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
        same(mode, 21, number(connection, "select n from jdbc where id = 2 for update"));
        execute(connection, "update jdbc set n = 22 where id = 2");
        connection.commit();
        same(mode, 22, number(other, "select n from jdbc where id = 2"));

        fetchSize(connection, other, mode);

        // With autocommit a batch is one transaction, unless it is sent query by query.
        connection.setAutoCommit(true);
        try (PreparedStatement insert = connection.prepareStatement("insert into jdbc values (?, 0)")) {
            for (int id : new int[] {100, 101, 1}) {
                insert.setLong(1, id);
                insert.addBatch();
            }
            insert.executeBatch();
            throw new IllegalStateException(mode + ": a key came twice");
        } catch (SQLException refused) {
            same(mode, "23505", refused.getSQLState());
        }
        same(mode, mode.equals("simple") ? 12 : 10, number(other, "select count(*) from jdbc"));
    }

    /** Without autocommit and with a fetch size, a result comes part by part; a commit ends it, unless it is held. */
    static void fetchSize(Connection connection, Connection other, String mode) throws SQLException {
        execute(connection, "create table many (primary key (id)) as select i as id from generate_series(1, 20000) as g(i)");
        connection.commit();
        try (PreparedStatement select = connection.prepareStatement("select id from many order by id")) {
            select.setFetchSize(100);
            ResultSet rows = select.executeQuery();
            for (int id = 1; id <= 150; id++) {
                rows.next();
                same(mode, id, rows.getLong(1));
            }
            execute(connection, "delete from many where id > 19000");
            execute(other, "update many set id = id where id = 1");
            int id = 150;
            while (rows.next()) {
                same(mode, ++id, rows.getLong(1));
            }
            same(mode, 20000, id);
            connection.rollback();
            rows = select.executeQuery();
            rows.next();
            connection.commit();
            // What was fetched is the client's. In the simple protocol that is all.
            for (id = 2; id <= 100; id++) {
                rows.next();
                same(mode, id, rows.getLong(1));
            }
            try {
                while (rows.next()) {
                    id++;
                }
                same(mode, "simple", mode);
            } catch (SQLException refused) {
                same(mode, "34000", refused.getSQLState());
            }
            connection.rollback();
        }
        execute(connection, "drop table many");
        connection.commit();
    }

    static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    static long number(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getLong(1);
        }
    }

    static void same(String mode, Object wanted, Object found) {
        if (!String.valueOf(wanted).equals(String.valueOf(found))) {
            throw new IllegalStateException(mode + ": " + found + " instead of " + wanted);
        }
    }
}
