import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.MutateInOptions.mutateInOptions;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.subdoc.PathExistsException;
import com.couchbase.client.core.error.subdoc.PathMismatchException;
import com.couchbase.client.core.error.subdoc.PathNotFoundException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.LookupInResult;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInResult;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.StoreSemantics;
import java.time.Duration;
import java.util.List;

/** Parts of documents. */
public final class Parts {
  private static final Collection documents = Cases.collection;

  private Parts() {}

  public static void lookups() {
    String key = "java-lookups";
    documents.upsert(key, JsonObject.fromJson("{\"a\": {\"b\": [1, 2, 3]}, \"n\": 7}"));
    LookupInResult found =
        documents.lookupIn(
            key,
            List.of(
                LookupInSpec.get("a.b[-1]"),
                LookupInSpec.exists("n"),
                LookupInSpec.exists("absent"),
                LookupInSpec.count("a.b"),
                LookupInSpec.get("absent"),
                LookupInSpec.get("n.x"),
                LookupInSpec.get("")));
    Cases.same(3, found.contentAs(0, Integer.class));
    Cases.same(true, found.exists(1));
    Cases.same(false, found.exists(2));
    Cases.same(3, found.contentAs(3, Integer.class));
    Cases.fails(() -> found.contentAs(4, Integer.class), PathNotFoundException.class);
    Cases.fails(() -> found.contentAs(5, Integer.class), PathMismatchException.class);
    Cases.same(7, found.contentAsObject(6).getInt("n"));
    Cases.fails(
        () -> documents.lookupIn(key + "-absent", List.of(LookupInSpec.get("a"))), DocumentNotFoundException.class);
    JsonObject projected = documents.get(key, getOptions().project("n")).contentAsObject();
    Cases.same(JsonObject.create().put("n", 7), projected);
  }

  public static void mutations() {
    String key = "java-mutations";
    documents.upsert(key, JsonObject.fromJson("{\"list\": [2], \"old\": 1}"));
    MutateInResult made =
        documents.mutateIn(
            key,
            List.of(
                MutateInSpec.insert("new", true),
                MutateInSpec.upsert("deep.er", 1).createPath(),
                MutateInSpec.replace("old", "replaced"),
                MutateInSpec.arrayAppend("list", List.of(3)),
                MutateInSpec.arrayPrepend("list", List.of(0)),
                MutateInSpec.arrayInsert("list[1]", List.of(1)),
                MutateInSpec.arrayAddUnique("list", 4),
                MutateInSpec.increment("count", 5),
                MutateInSpec.decrement("count", 2)));
    Cases.same(3, made.contentAs(8, Integer.class));
    JsonObject expected =
        JsonObject.create()
            .put("new", true)
            .put("deep", JsonObject.create().put("er", 1))
            .put("old", "replaced")
            .put("count", 3)
            .put("list", JsonArray.from(0, 1, 2, 3, 4));
    Cases.same(expected, documents.get(key).contentAsObject());
    documents.mutateIn(key, List.of(MutateInSpec.remove("list[0]"), MutateInSpec.remove("old")));
    Cases.fails(
        () -> documents.mutateIn(key, List.of(MutateInSpec.upsert("kept", 1), MutateInSpec.insert("new", 1))),
        PathExistsException.class);
    expected.removeKey("old").put("list", JsonArray.from(1, 2, 3, 4));
    Cases.same(expected, documents.get(key).contentAsObject());
  }

  public static void mutationsThatStore() {
    String key = "java-stores";
    List<MutateInSpec> part = List.of(MutateInSpec.upsert("a", 1));
    Cases.fails(() -> documents.mutateIn(key, part), DocumentNotFoundException.class);
    long cas =
        documents
            .mutateIn(key, part, mutateInOptions().storeSemantics(StoreSemantics.INSERT).expiry(Duration.ofHours(1)))
            .cas();
    Cases.fails(
        () -> documents.mutateIn(key, part, mutateInOptions().storeSemantics(StoreSemantics.INSERT)),
        DocumentExistsException.class);
    documents.mutateIn(key, part, mutateInOptions().storeSemantics(StoreSemantics.UPSERT));
    Cases.fails(() -> documents.mutateIn(key, part, mutateInOptions().cas(cas)), CasMismatchException.class);
  }

  public static void dataStructures() {
    List<Integer> list = documents.list("java-list", Integer.class);
    list.add(1);
    list.add(0, 0);
    Cases.same(List.of(0, 1), List.copyOf(list));
    documents.map("java-map", Integer.class).put("x", 1);
    Cases.same(1, documents.map("java-map", Integer.class).get("x"));
    documents.set("java-set", String.class).add("x");
    Cases.same(true, documents.set("java-set", String.class).contains("x"));
    documents.queue("java-queue", Integer.class).add(1);
    Cases.same(1, documents.queue("java-queue", Integer.class).poll());
  }
}
