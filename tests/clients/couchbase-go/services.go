package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/couchbase/gocb/v2"
	"github.com/couchbase/gocb/v2/search"
)

func (c Cases) CollectionsAreTables() {
	shop := c.cluster.Bucket("shop")
	ok(shop.WaitUntilReady(patience, nil))
	orders := shop.Collection("orders")
	must(orders.Upsert("42", document{"note": "first"}, nil))
	same(document{"id": 42.0, "note": "first"}, content[document](must(orders.Get("42", nil))))
	people := shop.Scope("crm").Collection("people")
	must(people.Insert("go", document{"name": "Go"}, nil))
	same(document{"id": "go", "name": "Go"}, content[document](must(people.Get("go", nil))))
	_, err := shop.Scope("crm").Collection("nobody").Get("k", &gocb.GetOptions{Timeout: short})
	fails(err, gocb.ErrTimeout, gocb.ErrCollectionNotFound)
}

func (c Cases) ABucketThatIsNoSchemaIsRefused() {
	other := connect()
	defer other.Close(nil)
	err := other.Bucket("nothing").WaitUntilReady(short, nil)
	holds(err != nil, "a bucket that is not there is ready")
}

func (c Cases) WaitingAndPinging() {
	ok(c.cluster.WaitUntilReady(patience, nil))
	report := must(c.bucket.Ping(&gocb.PingOptions{ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeKeyValue}}))
	for _, endpoint := range report.Services[gocb.ServiceTypeKeyValue] {
		same(gocb.PingStateOk, endpoint.State)
	}
	must(c.cluster.Diagnostics(nil))
}

func (c Cases) OtherServicesAreRefusedAtOnce() {
	err := soon(func() error {
		_, err := c.cluster.Query("select 1", nil)
		return err
	})
	fails(err, gocb.ErrServiceNotAvailable)
	err = soon(func() error {
		_, err := c.cluster.SearchQuery("index", search.NewMatchQuery("x"), nil)
		return err
	})
	fails(err, gocb.ErrServiceNotAvailable)
	err = soon(func() error {
		_, err := c.cluster.AnalyticsQuery("select 1", nil)
		return err
	})
	fails(err, gocb.ErrServiceNotAvailable)
}

func (c Cases) ManagementIsRefusedByName() {
	err := soon(func() error {
		_, err := c.cluster.Buckets().GetAllBuckets(nil)
		return err
	})
	holds(err != nil && strings.Contains(fmt.Sprint(err), "not supported by oribi"), err)
	err = soon(func() error {
		return c.bucket.Collections().CreateScope("made", nil)
	})
	holds(err != nil && strings.Contains(fmt.Sprint(err), "not supported by oribi"), err)
}

func (c Cases) ScansAreRefused() {
	err := soon(func() error {
		_, err := c.collection.Scan(gocb.RangeScan{}, nil)
		return err
	})
	fails(err, gocb.ErrFeatureNotAvailable)
}

func (c Cases) TransactionsAreRefused() {
	key, made := "go-transactions", "go-transactions-made"
	must(c.collection.Upsert(key, document{"n": 1}, nil))
	for _, work := range []gocb.AttemptFunc{
		func(attempt *gocb.TransactionAttemptContext) error {
			found, err := attempt.Get(c.collection, key)
			if err == nil {
				_, err = attempt.Replace(found, document{"n": 2})
			}
			return err
		},
		func(attempt *gocb.TransactionAttemptContext) error {
			_, err := attempt.Insert(c.collection, made, document{"n": 3})
			return err
		},
	} {
		err := soon(func() error {
			_, err := c.cluster.Transactions().Run(work, nil)
			return err
		})
		var failed *gocb.TransactionFailedError
		holds(errors.As(err, &failed), err)
	}
	same(document{"n": 1.0}, content[document](must(c.collection.Get(key, nil))))
	same(false, must(c.collection.Exists(made, nil)).Exists())
}
