// Transactions of node-postgres, unmodified, as its documentation has them: statements of one client between BEGIN and COMMIT. Run by
// test_postgres_node.py, which starts the server (ORIBI_POSTGRES, a port) and says where the client is (NODE_CLIENTS).

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { after, before, beforeEach, test } from 'node:test'

const pg = createRequire(`${process.env.NODE_CLIENTS}/`)('pg')

const address = { host: '127.0.0.1', port: Number(process.env.ORIBI_POSTGRES), user: 'oribi', database: 'oribi' }
let pool
let client
let other

before(async () => {
  pool = new pg.Pool(address)
  client = await pool.connect()
  other = await pool.connect()
})

after(() => {
  client.release()
  other.release()
  return pool.end()
})

beforeEach(async () => {
  await client.query('drop table if exists account')
  await client.query('create table account (id int primary key, n int not null)')
})

const rows = async (of) => (await of.query('select id, n from account order by id')).rows.map(({ id, n }) => [id, n])
const insert = (...values) => client.query('insert into account values ($1, $2)', values)
const refused = (promise, code) => assert.rejects(promise, { code })

test('commit shows all, rollback nothing', async () => {
  await client.query('BEGIN')
  await insert(1, 10)
  await insert(2, 20)
  const moved = 'update account set n = n + $2 where id = $1 returning n'
  assert.equal((await client.query(moved, [1, -5])).rows[0].n, 5)
  await client.query(moved, [2, 5])
  assert.deepEqual(await rows(client), [[1, 5], [2, 25]])
  assert.deepEqual(await rows(other), [])
  await client.query('COMMIT')
  assert.deepEqual(await rows(other), [[1, 5], [2, 25]])
  await client.query('BEGIN')
  await client.query('delete from account')
  await client.query('ROLLBACK')
  assert.deepEqual(await rows(other), [[1, 5], [2, 25]])
})

test('what failed is rolled back, up to a savepoint', async () => {
  await client.query('BEGIN')
  await insert(1, 1)
  await refused(insert(1, 1), '23505')
  await refused(insert(2, 2), '25P02')
  assert.equal((await client.query('COMMIT')).command, 'ROLLBACK')
  await client.query('BEGIN')
  await insert(1, 1)
  await client.query('SAVEPOINT before')
  await refused(insert(1, 1), '23505')
  await client.query('ROLLBACK TO SAVEPOINT before')
  await insert(2, 2)
  await client.query('RELEASE SAVEPOINT before')
  await client.query('COMMIT')
  assert.deepEqual(await rows(other), [[1, 1], [2, 2]])
})

test('prepared statements are part of the transaction', async () => {
  const add = (id, n) => client.query({ name: 'add', text: 'insert into account values ($1, $2)', values: [id, n] })
  await client.query('BEGIN')
  for (let id = 1; id <= 20; id++) await add(id, id)
  await client.query('ROLLBACK')
  assert.deepEqual(await rows(client), [])
  await client.query('BEGIN')
  // The client sends them one behind the other, without waiting for us.
  await Promise.all([add(1, 1), add(2, 2), add(3, 3)])
  await client.query('COMMIT')
  assert.deepEqual(await rows(other), [[1, 1], [2, 2], [3, 3]])
})

test('several statements in one text are one transaction', async () => {
  await client.query('insert into account values (1, 1); insert into account values (2, 2)')
  await refused(client.query('insert into account values (3, 3); insert into account values (1, 1)'), '23505')
  assert.deepEqual(await rows(other), [[1, 1], [2, 2]])
})

test('isolation levels', async () => {
  await insert(1, 1)
  await insert(2, 2)
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
  assert.deepEqual(await rows(client), [[1, 1], [2, 2]])
  await other.query('update account set n = 11 where id = 1')
  assert.deepEqual(await rows(client), [[1, 1], [2, 2]])
  await refused(client.query('update account set n = n + 1 where id = 1'), '40001')
  await client.query('ROLLBACK')
  await client.query('BEGIN ISOLATION LEVEL SERIALIZABLE')
  assert.deepEqual(await rows(client), [[1, 11], [2, 2]])
  await other.query('update account set n = 12 where id = 1')
  await client.query('update account set n = 22 where id = 2')
  await refused(client.query('COMMIT'), '40001')
  await client.query('BEGIN READ ONLY')
  await refused(insert(3, 3), '25006')
  await client.query('ROLLBACK')
  assert.deepEqual(await rows(client), [[1, 12], [2, 2]])
})

test('retries lose nothing', async () => {
  await insert(1, 0)
  const count = async (of) => {
    for (let done = 0; done < 10; ) {
      try {
        await of.query('BEGIN ISOLATION LEVEL SERIALIZABLE')
        const { n } = (await of.query('select n from account where id = 1')).rows[0]
        await of.query('update account set n = $1 where id = 1', [n + 1])
        await of.query('COMMIT')
        done++
      } catch (error) {
        assert.equal(error.code, '40001')
        await of.query('ROLLBACK')
      }
    }
  }
  await Promise.all([count(client), count(other)])
  assert.deepEqual(await rows(client), [[1, 20]])
})

test('a row that is locked is waited for', async () => {
  await insert(1, 1)
  await client.query('BEGIN')
  await client.query('select n from account where id = 1 for update')
  const waits = other.query('update account set n = n + 1 where id = 1')
  await client.query('update account set n = 10 where id = 1')
  await client.query('COMMIT')
  assert.equal((await waits).rowCount, 1)
  assert.deepEqual(await rows(client), [[1, 11]])
})

test('advisory locks and cursors', async () => {
  await client.query('BEGIN')
  await client.query('select pg_advisory_xact_lock($1)', [4711])
  const got = async () => (await other.query('select pg_try_advisory_lock($1) as got', [4711])).rows[0].got
  assert.equal(await got(), false)
  await client.query('declare c cursor for select i from generate_series(1, 5) as g(i)')
  assert.deepEqual((await client.query('fetch 3 from c')).rows.map(({ i }) => i), [1, 2, 3])
  assert.deepEqual((await client.query('fetch 3 from c')).rows.map(({ i }) => i), [4, 5])
  await client.query('COMMIT')
  assert.equal(await got(), true)
})
