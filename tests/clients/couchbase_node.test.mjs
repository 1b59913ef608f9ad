// The Couchbase Node SDK, unmodified: every key-value operation that it offers. Run by test_couchbase_node.py, which
// starts the server (ORIBI_COUCHBASE=host:port) and says where the SDK is (NODE_CLIENTS).

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { after, before, test } from 'node:test'

const couchbase = createRequire(`${process.env.NODE_CLIENTS}/`)('couchbase')
const { DurabilityLevel, LookupInMacro, LookupInSpec, MutateInSpec, StoreSemantics } = couchbase

let cluster
let collection

before(async () => {
  cluster = await couchbase.connect(`couchbase://${process.env.ORIBI_COUCHBASE}`, {
    username: 'somebody',
    password: 'anything',
    timeouts: { kvTimeout: 20_000 },
  })
  collection = cluster.bucket('default').defaultCollection()
})

after(() => cluster.close())

const rejects = (promise, ...names) =>
  assert.rejects(promise, (error) => {
    assert.ok(names.some((name) => error instanceof couchbase[name]), `${error.constructor.name}: ${error.message}`)
    return true
  })

test('upsert, insert, replace, get, exists, remove', async () => {
  await rejects(collection.get('n1'), 'DocumentNotFoundError')
  await rejects(collection.replace('n1', 1), 'DocumentNotFoundError')
  const first = await collection.insert('n1', { n: 1, text: 'grüße' })
  await rejects(collection.insert('n1', 2), 'DocumentExistsError')
  const found = await collection.get('n1')
  assert.deepEqual(found.content, { n: 1, text: 'grüße' })
  assert.equal(String(found.cas), String(first.cas))
  const second = await collection.replace('n1', { n: 2 }, { cas: found.cas })
  await rejects(collection.replace('n1', { n: 3 }, { cas: found.cas }), 'CasMismatchError')
  await rejects(collection.remove('n1', { cas: found.cas }), 'CasMismatchError')
  assert.ok(second.token)
  assert.ok((await collection.exists('n1')).exists)
  await collection.remove('n1')
  assert.ok(!(await collection.exists('n1')).exists)
  await rejects(collection.remove('n1'), 'DocumentNotFoundError')
})

test('many at a time', async () => {
  const keys = Array.from({ length: 500 }, (_, i) => `n2-${i}`)
  await Promise.all(keys.map((key, i) => collection.upsert(key, { i, pad: 'x'.repeat(i) })))
  const found = await Promise.all(keys.map((key) => collection.get(key)))
  found.forEach((result, i) => assert.equal(result.content.i, i))
})

test('expiry, touch, get and touch, preserved expiry', async () => {
  const expiry = async (key) => (await collection.get(key, { withExpiry: true })).expiryTime
  await collection.upsert('n3', 1, { expiry: 3600 })
  const before = await expiry('n3')
  assert.ok(before > Date.now() / 1000 + 3000)
  await collection.upsert('n3', 2, { preserveExpiry: true })
  assert.equal(await expiry('n3'), before)
  await collection.replace('n3', 3, { preserveExpiry: true })
  assert.equal(await expiry('n3'), before)
  await collection.touch('n3', 7200)
  assert.ok((await expiry('n3')) > before)
  const touched = await collection.getAndTouch('n3', 0)
  assert.equal(touched.content, 3)
  assert.ok(!(await expiry('n3')))
  await rejects(collection.touch('n3-absent', 1), 'DocumentNotFoundError')
})

test('projections', async () => {
  await collection.upsert('n4', { name: 'a', address: { city: 'b', zip: 1 } })
  const some = await collection.get('n4', { project: ['name', 'address.city'] })
  assert.deepEqual(some.content, { name: 'a', address: { city: 'b' } })
})

test('locks', async () => {
  const stored = await collection.upsert('n5', { a: 1 })
  const locked = await collection.getAndLock('n5', 30)
  assert.deepEqual(locked.content, { a: 1 })
  await rejects(
    collection.upsert('n5', 2, { timeout: 500 }),
    'DocumentLockedError', 'AmbiguousTimeoutError', 'UnambiguousTimeoutError', 'CasMismatchError'
  )
  await rejects(collection.unlock('n5', stored.cas, { timeout: 500 }), 'DocumentLockedError', 'CasMismatchError', 'UnambiguousTimeoutError')
  await collection.unlock('n5', locked.cas)
  await rejects(collection.unlock('n5', locked.cas), 'DocumentNotLockedError', 'TemporaryFailureError')
  await collection.upsert('n5', 2)
})

test('counters, append, prepend', async () => {
  const binary = collection.binary()
  assert.equal((await binary.increment('n6', 1, { initial: 10 })).value, 10)
  assert.equal((await binary.increment('n6', 5)).value, 15)
  assert.equal((await binary.decrement('n6', 20)).value, 0)
  await collection.upsert('n6', 'text')
  await rejects(binary.increment('n6', 1), 'DeltaInvalidError')
  const raw = new couchbase.RawBinaryTranscoder()
  await collection.upsert('n6b', Buffer.from('b'), { transcoder: raw })
  await binary.append('n6b', 'c')
  await binary.prepend('n6b', Buffer.from('a'))
  assert.equal(String((await collection.get('n6b', { transcoder: raw })).content), 'abc')
  await rejects(binary.append('n6-absent', 'x'), 'DocumentNotFoundError')
})

test('transcoders and sizes', async () => {
  const raw = new couchbase.RawBinaryTranscoder()
  for (const size of [0, 31, 33, 1 << 20, 19 << 20]) {
    const value = Buffer.alloc(size, 'abc')
    await collection.upsert('n7', value, { transcoder: raw })
    assert.ok(value.equals((await collection.get('n7', { transcoder: raw })).content))
  }
  await rejects(collection.upsert('n7', Buffer.alloc(21 << 20, 'x'), { transcoder: raw }), 'ValueTooLargeError')
  const noise = Buffer.alloc(21 << 20)
  for (let i = 0; i < noise.length; i += 1) noise[i] = (i * 2654435761) >>> 13
  await rejects(collection.upsert('n7', noise, { transcoder: raw }), 'ValueTooLargeError')
  await collection.upsert('n7', 'grüße', { transcoder: new couchbase.RawStringTranscoder() })
  assert.equal((await collection.get('n7', { transcoder: new couchbase.RawStringTranscoder() })).content, 'grüße')
  await collection.upsert('n7', '{"raw":1}', { transcoder: new couchbase.RawJsonTranscoder() })
  assert.deepEqual((await collection.get('n7')).content, { raw: 1 })
})

test('durable writes', async () => {
  for (const durabilityLevel of [
    DurabilityLevel.Majority,
    DurabilityLevel.MajorityAndPersistOnMaster,
    DurabilityLevel.PersistToMajority,
  ]) {
    await collection.upsert('n8', 1, { durabilityLevel })
    await collection.replace('n8', 2, { durabilityLevel })
    await collection.mutateIn('n8-parts', [MutateInSpec.upsert('a', 1)], { durabilityLevel, storeSemantics: StoreSemantics.Upsert })
    await collection.binary().increment('n8-counter', 1, { initial: 1, durabilityLevel })
    await collection.remove('n8', { durabilityLevel })
    await rejects(collection.get('n8'), 'DocumentNotFoundError')
    await collection.insert('n8', 1, { durabilityLevel })
    await collection.remove('n8')
  }
  await collection.upsert('n8', 1, { durabilityPersistTo: 1 })
})

test('lookups', async () => {
  await collection.upsert('n9', { n: 1, o: { deep: 'x' }, a: [1, 2, 3] }, { expiry: 3600 })
  const found = await collection.lookupIn('n9', [
    LookupInSpec.get('n'),
    LookupInSpec.get('o.deep'),
    LookupInSpec.get('a[-1]'),
    LookupInSpec.exists('o.none'),
    LookupInSpec.count('a'),
    LookupInSpec.get(''),
    LookupInSpec.get('none'),
    LookupInSpec.get(LookupInMacro.Expiry, { xattr: true }),
  ].sort((a, b) => Number(b._flags ?? 0) - Number(a._flags ?? 0)))
  const values = found.content.map((entry) => entry.value)
  assert.ok(values.includes(1) && values.includes('x') && values.includes(3))
  assert.equal(found.content.filter((entry) => entry.error).length, 1)
  const document = await collection.lookupIn('n9', [LookupInSpec.get(LookupInMacro.Document, { xattr: true })])
  assert.equal(document.content[0].value.deleted, false)
  await rejects(collection.lookupIn('n9-absent', [LookupInSpec.get('n')]), 'DocumentNotFoundError')
})

test('mutations', async () => {
  await collection.upsert('n10', { o: { gone: 1 }, a: [2], u: [1], n: 5 })
  const done = await collection.mutateIn('n10', [
    MutateInSpec.insert('o.new', 1),
    MutateInSpec.upsert('p.q', 1, { createPath: true }),
    MutateInSpec.replace('n', 6),
    MutateInSpec.remove('o.gone'),
    MutateInSpec.arrayAppend('a', [3, 4], { multi: true }),
    MutateInSpec.arrayPrepend('a', 1),
    MutateInSpec.arrayInsert('a[1]', 1.5),
    MutateInSpec.arrayAddUnique('u', 2),
    MutateInSpec.increment('c', 5),
    MutateInSpec.decrement('c', 1),
  ])
  assert.equal(done.content[8].value, 5)
  assert.equal(done.content[9].value, 4)
  assert.deepEqual((await collection.get('n10')).content, {
    o: { new: 1 }, a: [1, 1.5, 2, 3, 4], u: [1, 2], n: 6, p: { q: 1 }, c: 4,
  })
  await rejects(collection.mutateIn('n10', [MutateInSpec.insert('n', 1)]), 'PathExistsError')
  await rejects(collection.mutateIn('n10', [MutateInSpec.replace('none', 1)]), 'PathNotFoundError')
  await rejects(collection.mutateIn('n10', [MutateInSpec.arrayAppend('n', 1)]), 'PathMismatchError')
  await rejects(collection.mutateIn('n10-absent', [MutateInSpec.upsert('a', 1)]), 'DocumentNotFoundError')
  await collection.mutateIn('n10-made', [MutateInSpec.upsert('a', 1)], { storeSemantics: StoreSemantics.Insert })
  await rejects(
    collection.mutateIn('n10-made', [MutateInSpec.upsert('a', 1)], { storeSemantics: StoreSemantics.Insert }),
    'DocumentExistsError'
  )
  await rejects(collection.mutateIn('n10', [MutateInSpec.upsert('mine', 1, { xattr: true })]), 'UnsupportedOperationError', 'FeatureNotAvailableError')
})

test('replicas are the document itself', async () => {
  await collection.upsert('n11', { a: 1 })
  assert.deepEqual((await collection.getAnyReplica('n11')).content, { a: 1 })
  assert.equal((await collection.getAllReplicas('n11')).length, 1)
  assert.equal((await collection.lookupInAnyReplica('n11', [LookupInSpec.get('a')])).content[0].value, 1)
  assert.equal((await collection.lookupInAllReplicas('n11', [LookupInSpec.get('a')])).length, 1)
})

test('transactions are refused and leave nothing', async () => {
  await collection.upsert('n13', { n: 1 })
  const transactions = cluster.transactions()
  const refused = (work) => assert.rejects(transactions.run(work), (error) => {
    assert.equal(error.constructor.name, 'TransactionFailedError')
    assert.match(String(error.cause), /unsupported_operation/)
    return true
  })
  await refused(async (attempt) => attempt.replace(await attempt.get(collection, 'n13'), { n: 2 }))
  await refused((attempt) => attempt.insert(collection, 'n14', { n: 3 }))
  assert.deepEqual((await collection.get('n13')).content, { n: 1 })
  assert.equal((await collection.exists('n14')).exists, false)
})

// The server refuses each scan. The SDK looks at "cancelled" before it looks for the refusal that cancelled the scan,
// so it tells an application that asks too late that the scan has ended; it never has documents.
test('scans are refused', async () => {
  const scan = async () => assert.deepEqual(await collection.scan(new couchbase.PrefixScan('n')), [])
  let refusal
  for (let i = 0; i < 100 && !refusal; i++) refusal = await scan().catch((error) => error)
  await rejects(Promise.reject(refusal), 'UnsupportedOperationError', 'FeatureNotAvailableError')
})

test('data structures of the SDK', async () => {
  const list = collection.list('n12-list')
  await list.push(2)
  await list.unshift(1)
  assert.deepEqual(await list.getAll(), [1, 2])
  assert.equal(await list.indexOf(2), 1)
  await list.removeAt(0)
  assert.equal(await list.size(), 1)
  const map = collection.map('n12-map')
  await map.set('one', 1)
  assert.equal(await map.get('one'), 1)
  assert.deepEqual(await map.keys(), ['one'])
  await map.remove('one')
  const set = collection.set('n12-set')
  await set.add('a')
  await set.add('a')
  assert.equal(await set.size(), 1)
  assert.ok(await set.contains('a'))
  await set.remove('a')
  const queue = collection.queue('n12-queue')
  await queue.push(1)
  await queue.push(2)
  assert.equal(await queue.pop(), 1)
})

test('collections that are tables, and those that are not', async () => {
  const rows = cluster.bucket('shop').scope('crm').collection('people')
  await rows.upsert('ann', { name: 'Ann', age: 30 })
  assert.deepEqual((await rows.get('ann')).content, { id: 'ann', name: 'Ann', age: 30 })
  await rejects(
    cluster.bucket('shop').collection('nothing').get('k', { timeout: 1000 }),
    'CollectionNotFoundError', 'UnambiguousTimeoutError'
  )
})
