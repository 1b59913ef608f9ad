// Transactions as programs of Go have them: pgx with its defaults, and in each of the ways in which it sends statements. Ends with a
// status other than 0 where something is not as it should be: `postgres-go PORT`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var ctx = context.Background()

// How statements are sent. The first is the default.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement,
	pgx.QueryExecModeCacheDescribe,
	pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec,
	pgx.QueryExecModeSimpleProtocol,
}

func main() {
	for _, mode := range modes {
		c := Cases{mode, connect(mode), connect(mode)}
		cases := reflect.TypeOf(c)
		for n := 0; n < cases.NumMethod(); n++ {
			fmt.Println(mode, cases.Method(n).Name)
			c.run("drop table if exists gopher")
			c.run("create table gopher (id bigint primary key, n bigint not null)")
			reflect.ValueOf(c).Method(n).Call(nil)
		}
		ok(c.conn.Close(ctx))
		ok(c.other.Close(ctx))
	}
}

// Cases are its methods; each has the table to itself, without rows.
type Cases struct {
	mode        pgx.QueryExecMode
	conn, other *pgx.Conn
}

func connect(mode pgx.QueryExecMode) *pgx.Conn {
	config := must(pgx.ParseConfig("postgres://oribi@127.0.0.1:" + os.Args[1] + "/oribi?sslmode=disable"))
	config.DefaultQueryExecMode = mode
	return must(pgx.ConnectConfig(ctx, config))
}

func (c Cases) run(sql string) {
	must(c.conn.Exec(ctx, sql))
}

// rows are all that one of the two sees.
func rows(from interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}) string {
	found := must(from.Query(ctx, "select id, n from gopher order by id"))
	pairs := must(pgx.CollectRows(found, pair))
	return fmt.Sprint(pairs)
}

func pair(row pgx.CollectableRow) (pair [2]int64, err error) {
	err = row.Scan(&pair[0], &pair[1])
	return pair, err
}

func (c Cases) CommitShowsAllAndRollbackNothing() {
	tx := must(c.conn.Begin(ctx))
	must(tx.Exec(ctx, "insert into gopher values ($1, $2)", 1, 10))
	must(tx.Exec(ctx, "update gopher set n = n + $2 where id = $1", 1, 1))
	same("[[1 11]]", rows(tx))
	same("[]", rows(c.other))
	ok(tx.Commit(ctx))
	same("[[1 11]]", rows(c.other))
	tx = must(c.conn.Begin(ctx))
	must(tx.Exec(ctx, "delete from gopher"))
	ok(tx.Rollback(ctx))
	same("[[1 11]]", rows(c.conn))
}

// A transaction in another is a savepoint.
func (c Cases) NestedOnesAreUndoneAlone() {
	ok(pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error {
		must(tx.Exec(ctx, "insert into gopher values (1, 1)"))
		failed := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			must(inner.Exec(ctx, "insert into gopher values (2, 2)"))
			_, err := inner.Exec(ctx, "insert into gopher values (1, 1)")
			return err
		})
		same("23505", state(failed))
		return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			must(inner.Exec(ctx, "insert into gopher values (3, 3)"))
			innermost := must(inner.Begin(ctx))
			must(innermost.Exec(ctx, "delete from gopher"))
			return innermost.Rollback(ctx)
		})
	}))
	same("[[1 1] [3 3]]", rows(c.other))
}

func (c Cases) WhatFailedIsRolledBackByCommit() {
	tx := must(c.conn.Begin(ctx))
	must(tx.Exec(ctx, "insert into gopher values (1, 1)"))
	_, err := tx.Exec(ctx, "select nothing from gopher")
	same("42703", state(err))
	_, err = tx.Exec(ctx, "insert into gopher values (2, 2)")
	same("25P02", state(err))
	if err := tx.Commit(ctx); !errors.Is(err, pgx.ErrTxCommitRollback) {
		panic(fmt.Sprint("it was committed: ", err))
	}
	same("[]", rows(c.conn))
}

func (c Cases) LevelsAndModesAreKept() {
	c.run("insert into gopher values (1, 1), (2, 2)")
	tx := must(c.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))
	same("[[1 1] [2 2]]", rows(tx))
	must(c.other.Exec(ctx, "update gopher set n = 11 where id = 1"))
	same("[[1 1] [2 2]]", rows(tx))
	_, err := tx.Exec(ctx, "update gopher set n = n + 1 where id = 1")
	same("40001", state(err))
	ok(tx.Rollback(ctx))

	tx = must(c.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable}))
	same("[[1 11] [2 2]]", rows(tx))
	must(c.other.Exec(ctx, "update gopher set n = 12 where id = 1"))
	must(tx.Exec(ctx, "update gopher set n = 22 where id = 2"))
	same("40001", state(tx.Commit(ctx)))

	tx = must(c.conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly}))
	_, err = tx.Exec(ctx, "delete from gopher")
	same("25006", state(err))
	ok(tx.Rollback(ctx))
	same("[[1 12] [2 2]]", rows(c.conn))
}

// What could not be serialized is tried again, until it could.
func (c Cases) RetriesLoseNothing() {
	c.run("insert into gopher values (1, 0)")
	var counting sync.WaitGroup
	for n := 0; n < 4; n++ {
		counting.Add(1)
		go func() {
			defer counting.Done()
			conn := connect(c.mode)
			for done := 0; done < 10; {
				err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
					var n int64
					if err := tx.QueryRow(ctx, "select n from gopher where id = $1", 1).Scan(&n); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "update gopher set n = $2 where id = $1", 1, n+1)
					return err
				})
				if err == nil {
					done++
				} else if state(err) != "40001" {
					panic(err)
				}
			}
			ok(conn.Close(ctx))
		}()
	}
	counting.Wait()
	same("[[1 40]]", rows(c.conn))
}

func (c Cases) BatchesArePartOfTheirTransaction() {
	inserts := func(ids ...int) *pgx.Batch {
		batch := &pgx.Batch{}
		for _, id := range ids {
			batch.Queue("insert into gopher values ($1, $2)", id, id)
		}
		return batch
	}
	tx := must(c.conn.Begin(ctx))
	must(tx.Exec(ctx, "insert into gopher values (1, 1)"))
	ok(tx.SendBatch(ctx, inserts(2, 3)).Close())
	same("[[1 1] [2 2] [3 3]]", rows(tx))
	inner := must(tx.Begin(ctx))
	same("23505", state(inner.SendBatch(ctx, inserts(4, 1, 5)).Close()))
	ok(inner.Rollback(ctx))
	ok(tx.Commit(ctx))
	same("[[1 1] [2 2] [3 3]]", rows(c.other))
	// By itself it is one.
	same("23505", state(c.conn.SendBatch(ctx, inserts(6, 7, 1)).Close()))
	same("[[1 1] [2 2] [3 3]]", rows(c.other))
	ok(c.conn.SendBatch(ctx, inserts(8, 9)).Close())
	same("[[1 1] [2 2] [3 3] [8 8] [9 9]]", rows(c.other))
}

func (c Cases) CursorsGiveRowsPartByPart() {
	c.run("insert into gopher select i, i from generate_series(1, 10) as g(i)")
	tx := must(c.conn.Begin(ctx))
	must(tx.Exec(ctx, "declare burrow cursor for select id from gopher order by id"))
	next := func() []int64 {
		return must(pgx.CollectRows(must(tx.Query(ctx, "fetch 4 from burrow")), pgx.RowTo[int64]))
	}
	same([]int64{1, 2, 3, 4}, next())
	must(tx.Exec(ctx, "delete from gopher"))
	same([]int64{5, 6, 7, 8}, next())
	same([]int64{9, 10}, next())
	same([]int64{}, next())
	ok(tx.Rollback(ctx))
}

func state(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return fmt.Sprint(err)
}

func same(wanted, found any) {
	if fmt.Sprint(wanted) != fmt.Sprint(found) {
		panic(fmt.Sprintf("%v instead of %v", found, wanted))
	}
}

func ok(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	ok(err)
	return value
}
