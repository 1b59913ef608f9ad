package main

import (
	"fmt"
	"time"

	"github.com/couchbase/gocb/v2"
)

type document = map[string]any

func (c Cases) UpsertInsertReplaceGetRemove() {
	key := "go-documents"
	_, err := c.collection.Get(key, nil)
	fails(err, gocb.ErrDocumentNotFound)
	_, err = c.collection.Replace(key, 1, nil)
	fails(err, gocb.ErrDocumentNotFound)
	inserted := must(c.collection.Insert(key, document{"a": 1.0}, nil))
	holds(inserted.MutationToken() != nil, "no mutation token")
	_, err = c.collection.Insert(key, 2, nil)
	fails(err, gocb.ErrDocumentExists)
	must(c.collection.Upsert(key, document{"a": 2.0}, nil))
	same(document{"a": 2.0}, content[document](must(c.collection.Get(key, nil))))
	replaced := must(c.collection.Replace(key, document{"a": 3.0}, nil))
	found := must(c.collection.Get(key, nil))
	same(replaced.Cas(), found.Cas())
	same(true, must(c.collection.Exists(key, nil)).Exists())
	must(c.collection.Remove(key, nil))
	same(false, must(c.collection.Exists(key, nil)).Exists())
	_, err = c.collection.Remove(key, nil)
	fails(err, gocb.ErrDocumentNotFound)
}

func (c Cases) ACasThatCameTooLateChangesNothing() {
	key := "go-cas"
	old := must(c.collection.Upsert(key, 1, nil)).Cas()
	current := must(c.collection.Upsert(key, 2, nil)).Cas()
	_, err := c.collection.Replace(key, 3, &gocb.ReplaceOptions{Cas: old})
	fails(err, gocb.ErrCasMismatch)
	_, err = c.collection.Remove(key, &gocb.RemoveOptions{Cas: old})
	fails(err, gocb.ErrCasMismatch)
	same(2, content[int](must(c.collection.Get(key, nil))))
	must(c.collection.Remove(key, &gocb.RemoveOptions{Cas: current}))
}

func (c Cases) Counters() {
	key, binary := "go-counter", c.collection.Binary()
	_, err := binary.Increment(key, &gocb.IncrementOptions{Delta: 1, Initial: -1})
	fails(err, gocb.ErrDocumentNotFound)
	same(uint64(10), must(binary.Increment(key, &gocb.IncrementOptions{Delta: 1, Initial: 10})).Content())
	same(uint64(15), must(binary.Increment(key, &gocb.IncrementOptions{Delta: 5})).Content())
	same(uint64(0), must(binary.Decrement(key, &gocb.DecrementOptions{Delta: 20})).Content())
	same(0, content[int](must(c.collection.Get(key, nil))))
	must(c.collection.Upsert(key, document{}, nil))
	_, err = binary.Increment(key, &gocb.IncrementOptions{Delta: 1})
	fails(err, gocb.ErrDeltaInvalid)
}

func (c Cases) AppendAndPrepend() {
	key, binary := "go-append", c.collection.Binary()
	_, err := binary.Append(key, []byte("x"), nil)
	fails(err, gocb.ErrDocumentNotFound)
	raw := gocb.NewRawBinaryTranscoder()
	must(c.collection.Upsert(key, []byte("b"), &gocb.UpsertOptions{Transcoder: raw}))
	must(binary.Append(key, []byte("c"), nil))
	must(binary.Prepend(key, []byte("a"), nil))
	found := must(c.collection.Get(key, &gocb.GetOptions{Transcoder: raw}))
	same([]byte("abc"), content[[]byte](found))
}

func (c Cases) Expiry() {
	key := "go-expiry"
	expiry := func() time.Duration {
		found := must(c.collection.Get(key, &gocb.GetOptions{WithExpiry: true}))
		if found.ExpiryTime().Unix() <= 0 {
			return 0
		}
		return time.Until(found.ExpiryTime())
	}
	must(c.collection.Upsert(key, 1, &gocb.UpsertOptions{Expiry: time.Hour}))
	holds(expiry() > 50*time.Minute && expiry() <= time.Hour, expiry())
	must(c.collection.Upsert(key, 2, &gocb.UpsertOptions{PreserveExpiry: true}))
	holds(expiry() > 0, "the expiry was not kept")
	must(c.collection.Touch(key, 400*24*time.Hour, nil))
	holds(expiry() > 399*24*time.Hour, expiry())
	same(2, content[int](must(c.collection.GetAndTouch(key, 2*time.Hour, nil))))
	holds(expiry() > time.Hour && expiry() <= 2*time.Hour, expiry())
	must(c.collection.Replace(key, 3, nil))
	same(time.Duration(0), expiry())
	_, err := c.collection.Touch(key+"-absent", time.Hour, nil)
	fails(err, gocb.ErrDocumentNotFound)
}

func (c Cases) WhatHasExpiredIsGone() {
	key := "go-expired"
	must(c.collection.Upsert(key, 1, &gocb.UpsertOptions{Expiry: time.Second}))
	for must(c.collection.Exists(key, nil)).Exists() {
	}
	_, err := c.collection.Get(key, nil)
	fails(err, gocb.ErrDocumentNotFound)
	must(c.collection.Insert(key, 2, nil))
}

func (c Cases) Locks() {
	key := "go-lock"
	cas := must(c.collection.Upsert(key, 1, nil)).Cas()
	locked := must(c.collection.GetAndLock(key, 30*time.Second, nil))
	same(1, content[int](locked))
	holds(locked.Cas() != cas, "the lock has the document's cas")
	_, err := c.collection.Upsert(key, 2, &gocb.UpsertOptions{Timeout: short})
	fails(err, gocb.ErrTimeout, gocb.ErrDocumentLocked)
	_, err = c.collection.GetAndLock(key, time.Second, &gocb.GetAndLockOptions{Timeout: short})
	fails(err, gocb.ErrTimeout, gocb.ErrDocumentLocked)
	ok(c.collection.Unlock(key, locked.Cas(), nil))
	err = c.collection.Unlock(key, locked.Cas(), &gocb.UnlockOptions{Timeout: short})
	holds(err != nil, "unlocked twice")
	locked = must(c.collection.GetAndLock(key, 30*time.Second, nil))
	must(c.collection.Replace(key, 3, &gocb.ReplaceOptions{Cas: locked.Cas()}))
	must(c.collection.Upsert(key, 4, nil))
}

func (c Cases) DurableWrites() {
	for level := gocb.DurabilityLevelMajority; level <= gocb.DurabilityLevelPersistToMajority; level++ {
		key := fmt.Sprint("go-durable-", level)
		must(c.collection.Insert(key, 1, &gocb.InsertOptions{DurabilityLevel: level}))
		must(c.collection.Upsert(key, 2, &gocb.UpsertOptions{DurabilityLevel: level}))
		must(c.collection.Replace(key, 3, &gocb.ReplaceOptions{DurabilityLevel: level}))
		must(c.collection.MutateIn(key+"-part", []gocb.MutateInSpec{gocb.UpsertSpec("a", 1, nil)},
			&gocb.MutateInOptions{DurabilityLevel: level, StoreSemantic: gocb.StoreSemanticsUpsert}))
		must(c.collection.Remove(key, &gocb.RemoveOptions{DurabilityLevel: level}))
	}
}

func (c Cases) ManyAtATime() {
	var upserts, gets []gocb.BulkOp
	for i := 0; i < 500; i++ {
		key := fmt.Sprint("go-many-", i)
		upserts = append(upserts, &gocb.UpsertOp{ID: key, Value: document{"i": float64(i)}})
		gets = append(gets, &gocb.GetOp{ID: key})
	}
	ok(c.collection.Do(upserts, nil))
	for _, op := range upserts {
		ok(op.(*gocb.UpsertOp).Err)
	}
	absent := &gocb.GetOp{ID: "go-many-absent"}
	ok(c.collection.Do(append(gets, absent), nil))
	for i, op := range gets {
		get := op.(*gocb.GetOp)
		ok(get.Err)
		same(document{"i": float64(i)}, content[document](get.Result))
	}
	fails(absent.Err, gocb.ErrDocumentNotFound)
}

func (c Cases) SizesCompressedOrNot() {
	for _, size := range []int{0, 1, 1000, 1 << 20, 19 << 20} {
		key, value := fmt.Sprint("go-size-", size), make([]byte, size)
		raw := gocb.NewRawBinaryTranscoder()
		must(c.collection.Upsert(key, value, &gocb.UpsertOptions{Transcoder: raw, Timeout: 30 * time.Second}))
		found := must(c.collection.Get(key, &gocb.GetOptions{Transcoder: raw, Timeout: 30 * time.Second}))
		same(size, len(content[[]byte](found)))
		must(c.collection.Remove(key, nil))
	}
	_, err := c.collection.Upsert("go-too-large", make([]byte, 21<<20), &gocb.UpsertOptions{
		Transcoder: gocb.NewRawBinaryTranscoder(), Timeout: 30 * time.Second,
	})
	fails(err, gocb.ErrValueTooLarge)
}

func (c Cases) ReplicasAreTheDocumentItself() {
	key := "go-replica"
	must(c.collection.Upsert(key, 7, nil))
	found := must(c.collection.GetAnyReplica(key, nil))
	same(7, content[int](found))
	same(false, found.IsReplica())
}
