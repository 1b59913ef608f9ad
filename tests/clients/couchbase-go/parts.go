package main

import (
	"time"

	"github.com/couchbase/gocb/v2"
)

func (c Cases) Lookups() {
	key := "go-lookups"
	must(c.collection.Upsert(key, document{"a": document{"b": []int{1, 2, 3}}, "n": 7}, nil))
	found := must(c.collection.LookupIn(key, []gocb.LookupInSpec{
		gocb.GetSpec("a.b[-1]", nil),
		gocb.ExistsSpec("n", nil),
		gocb.ExistsSpec("absent", nil),
		gocb.CountSpec("a.b", nil),
		gocb.GetSpec("absent", nil),
		gocb.GetSpec("n.x", nil),
		gocb.GetSpec("", nil),
	}, nil))
	var last, count int
	ok(found.ContentAt(0, &last))
	same(3, last)
	same(true, found.Exists(1))
	same(false, found.Exists(2))
	ok(found.ContentAt(3, &count))
	same(3, count)
	fails(found.ContentAt(4, &last), gocb.ErrPathNotFound)
	fails(found.ContentAt(5, &last), gocb.ErrPathMismatch)
	var whole document
	ok(found.ContentAt(6, &whole))
	same(7.0, whole["n"])
	_, err := c.collection.LookupIn(key+"-absent", []gocb.LookupInSpec{gocb.GetSpec("a", nil)}, nil)
	fails(err, gocb.ErrDocumentNotFound)
	projected := must(c.collection.Get(key, &gocb.GetOptions{Project: []string{"n"}}))
	same(document{"n": 7.0}, content[document](projected))
}

func (c Cases) Mutations() {
	key := "go-mutations"
	must(c.collection.Upsert(key, document{"list": []int{2}, "old": 1}, nil))
	made := must(c.collection.MutateIn(key, []gocb.MutateInSpec{
		gocb.InsertSpec("new", true, nil),
		gocb.UpsertSpec("deep.er", 1, &gocb.UpsertSpecOptions{CreatePath: true}),
		gocb.ReplaceSpec("old", "replaced", nil),
		gocb.ArrayAppendSpec("list", 3, nil),
		gocb.ArrayPrependSpec("list", 0, nil),
		gocb.ArrayInsertSpec("list[1]", 1, nil),
		gocb.ArrayAddUniqueSpec("list", 4, nil),
		gocb.IncrementSpec("count", 5, nil),
		gocb.DecrementSpec("count", 2, nil),
	}, nil))
	var count int
	ok(made.ContentAt(8, &count))
	same(3, count)
	expected := document{
		"new": true, "deep": document{"er": 1.0}, "old": "replaced", "count": 3.0,
		"list": []any{0.0, 1.0, 2.0, 3.0, 4.0},
	}
	same(expected, content[document](must(c.collection.Get(key, nil))))
	must(c.collection.MutateIn(key, []gocb.MutateInSpec{gocb.RemoveSpec("list[0]", nil), gocb.RemoveSpec("old", nil)}, nil))
	_, err := c.collection.MutateIn(key, []gocb.MutateInSpec{
		gocb.UpsertSpec("kept", 1, nil), gocb.InsertSpec("new", 1, nil),
	}, nil)
	fails(err, gocb.ErrPathExists)
	delete(expected, "old")
	expected["list"] = []any{1.0, 2.0, 3.0, 4.0}
	same(expected, content[document](must(c.collection.Get(key, nil))))
}

func (c Cases) MutationsThatStore() {
	key := "go-stores"
	part := []gocb.MutateInSpec{gocb.UpsertSpec("a", 1, nil)}
	_, err := c.collection.MutateIn(key, part, nil)
	fails(err, gocb.ErrDocumentNotFound)
	insert := &gocb.MutateInOptions{StoreSemantic: gocb.StoreSemanticsInsert, Expiry: time.Hour}
	cas := must(c.collection.MutateIn(key, part, insert)).Cas()
	_, err = c.collection.MutateIn(key, part, insert)
	fails(err, gocb.ErrDocumentExists)
	must(c.collection.MutateIn(key, part, &gocb.MutateInOptions{StoreSemantic: gocb.StoreSemanticsUpsert}))
	_, err = c.collection.MutateIn(key, part, &gocb.MutateInOptions{Cas: cas})
	// The SDK has no other word for it here.
	fails(err, gocb.ErrCasMismatch, gocb.ErrDocumentExists)
}

func (c Cases) DataStructures() {
	list := c.collection.List("go-list")
	ok(list.Append("b"))
	ok(list.Prepend("a"))
	same(2, must(list.Size()))
	same(1, must(list.IndexOf("b")))
	dictionary := c.collection.Map("go-map")
	ok(dictionary.Add("x", 1))
	same(true, must(dictionary.Exists("x")))
	set := c.collection.Set("go-set")
	ok(set.Add("x"))
	same(true, must(set.Contains("x")))
	queue := c.collection.Queue("go-queue")
	ok(queue.Push(1))
	var first int
	ok(queue.Pop(&first))
	same(1, first)
}
