// Runs cases with Couchbase's Go SDK, with its defaults: `couchbase-go ADDRESS USER PASSWORD [SECONDS]`, of which the last
// is how long it may take to come in. Reads the name of a case from each line of the input, and answers with what went wrong,
// if something did, and a line `passed` or `failed`.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/couchbase/gocb/v2"
)

// Of what must be done some time.
const patience = 2 * time.Minute

// Of what the SDK tries again until its time is over.
const short = time.Second

// Cases are its methods.
type Cases struct {
	cluster *gocb.Cluster
	bucket  *gocb.Bucket
	// The collection that every case keeps keys of its own in.
	collection *gocb.Collection
}

// connect is to the address in the arguments, as the user there.
func connect() *gocb.Cluster {
	return must(gocb.Connect("couchbase://"+os.Args[1], gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{Username: os.Args[2], Password: os.Args[3]},
		// The only defaults that are not kept, for machines that are busy with other things.
		TimeoutsConfig: gocb.TimeoutsConfig{ConnectTimeout: patience, KVTimeout: patience, KVDurableTimeout: patience},
	}))
}

func main() {
	cluster := connect()
	bucket := cluster.Bucket("default")
	wait := patience
	if len(os.Args) > 4 {
		wait = must(time.ParseDuration(os.Args[4] + "s"))
	}
	ok(bucket.WaitUntilReady(wait, nil))
	cases := reflect.ValueOf(Cases{cluster, bucket, bucket.DefaultCollection()})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if passes(cases.MethodByName(lines.Text())) {
			fmt.Println("passed")
		} else {
			fmt.Println("failed")
		}
	}
	cluster.Close(nil)
}

func passes(method reflect.Value) (passed bool) {
	defer func() {
		if failure := recover(); failure != nil {
			fmt.Println(failure)
			for _, line := range strings.Split(string(debug.Stack()), "\n") {
				if strings.Contains(line, "couchbase-go/") {
					fmt.Println(line)
				}
			}
			passed = false
		}
	}()
	method.Call(nil)
	return true
}

// must returns what came without an error.
func must[T any](result T, err error) T {
	ok(err)
	return result
}

func ok(err error) {
	if err != nil {
		panic(err)
	}
}

// fails checks that an error is one of those expected.
func fails(err error, expected ...error) {
	for _, one := range expected {
		if errors.Is(err, one) {
			return
		}
	}
	panic(fmt.Sprintf("expected one of %v, got %v", expected, err))
}

func same(expected, actual any) {
	if !reflect.DeepEqual(expected, actual) {
		panic(fmt.Sprintf("expected %v, got %v", expected, actual))
	}
}

func holds(condition bool, told ...any) {
	if !condition {
		panic(fmt.Sprint(told...))
	}
}

// content is a document as T.
func content[T any](result interface{ Content(any) error }) T {
	var value T
	ok(result.Content(&value))
	return value
}

// soon runs what must not wait for a timeout.
func soon(ask func() error) error {
	began := time.Now()
	err := ask()
	took := time.Since(began)
	holds(took < 10*time.Second, "refused after ", took)
	return err
}
