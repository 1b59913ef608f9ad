import static com.couchbase.client.java.diagnostics.PingOptions.pingOptions;
import static com.couchbase.client.java.kv.GetOptions.getOptions;

import com.couchbase.client.core.diagnostics.EndpointPingReport;
import com.couchbase.client.core.diagnostics.PingState;
import com.couchbase.client.core.error.CollectionNotFoundException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.FeatureNotAvailableException;
import com.couchbase.client.core.error.ServiceNotAvailableException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.error.UnambiguousTimeoutException;
import com.couchbase.client.core.service.ServiceType;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.ScanType;
import com.couchbase.client.java.search.SearchQuery;
import com.couchbase.client.java.transactions.error.TransactionFailedException;
import java.util.Set;

/** Buckets, collections, and what is asked of other services. */
public final class Services {
  private Services() {}

  public static void collectionsAreTables() {
    Bucket shop = Cases.cluster.bucket("shop");
    shop.waitUntilReady(Cases.PATIENCE);
    Collection orders = shop.collection("orders");
    orders.upsert("43", JsonObject.create().put("note", "first"));
    Cases.same(JsonObject.create().put("id", 43).put("note", "first"), orders.get("43").contentAsObject());
    Collection people = shop.scope("crm").collection("people");
    people.insert("java", JsonObject.create().put("name", "Java"));
    Cases.same(JsonObject.create().put("id", "java").put("name", "Java"), people.get("java").contentAsObject());
    Cases.fails(
        () -> shop.scope("crm").collection("nobody").get("k", getOptions().timeout(Cases.SHORT)),
        TimeoutException.class,
        CollectionNotFoundException.class);
  }

  public static void aBucketThatIsNoSchemaIsRefused() {
    // The SDK goes on trying, and nothing else of the cluster is ready meanwhile.
    try (Cluster other = Cases.connect()) {
      Cases.fails(() -> other.bucket("nothing").waitUntilReady(Cases.SHORT), UnambiguousTimeoutException.class);
    }
  }

  public static void waitingAndPinging() {
    Cases.cluster.waitUntilReady(Cases.PATIENCE);
    for (EndpointPingReport endpoint :
        Cases.bucket.ping(pingOptions().serviceTypes(Set.of(ServiceType.KV))).endpoints().get(ServiceType.KV)) {
      Cases.same(PingState.OK, endpoint.state());
    }
    Cases.cluster.diagnostics();
  }

  public static void otherServicesAreRefusedAtOnce() {
    Cases.failsAtOnce(() -> Cases.cluster.query("select 1"), ServiceNotAvailableException.class);
    Cases.failsAtOnce(
        () -> Cases.cluster.searchQuery("index", SearchQuery.match("x")), ServiceNotAvailableException.class);
    Cases.failsAtOnce(() -> Cases.cluster.analyticsQuery("select 1"), ServiceNotAvailableException.class);
  }

  public static void managementIsRefusedByName() {
    Exception refused = Cases.failsAtOnce(() -> Cases.cluster.buckets().getAllBuckets(), CouchbaseException.class);
    Cases.holds(refused.toString().contains("not supported by oribi"), refused);
    refused = Cases.failsAtOnce(() -> Cases.bucket.collections().createScope("made"), CouchbaseException.class);
    Cases.holds(refused.toString().contains("not supported by oribi"), refused);
  }

  public static void scansAreRefused() {
    Cases.failsAtOnce(
        () -> Cases.collection.scan(ScanType.rangeScan(null, null)).count(), FeatureNotAvailableException.class);
  }

  public static void transactionsAreRefused() {
    String key = "java-transactions";
    String made = "java-transactions-made";
    Cases.collection.upsert(key, JsonObject.create().put("n", 1));
    Cases.failsAtOnce(
        () ->
            Cases.cluster
                .transactions()
                .run(
                    attempt ->
                        attempt.replace(attempt.get(Cases.collection, key), JsonObject.create().put("n", 2))),
        TransactionFailedException.class);
    Cases.failsAtOnce(
        () ->
            Cases.cluster
                .transactions()
                .run(attempt -> attempt.insert(Cases.collection, made, JsonObject.create().put("n", 3))),
        TransactionFailedException.class);
    Cases.same(JsonObject.create().put("n", 1), Cases.collection.get(key).contentAsObject());
    Cases.same(false, Cases.collection.exists(made).exists());
  }
}
