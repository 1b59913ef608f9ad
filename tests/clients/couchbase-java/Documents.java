import static com.couchbase.client.java.kv.DecrementOptions.decrementOptions;
import static com.couchbase.client.java.kv.GetAndLockOptions.getAndLockOptions;
import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.IncrementOptions.incrementOptions;
import static com.couchbase.client.java.kv.InsertOptions.insertOptions;
import static com.couchbase.client.java.kv.RemoveOptions.removeOptions;
import static com.couchbase.client.java.kv.ReplaceOptions.replaceOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentLockedException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.DocumentNotLockedException;
import com.couchbase.client.core.error.TimeoutException;
import com.couchbase.client.core.error.ValueTooLargeException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.BinaryCollection;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetResult;
import com.couchbase.client.java.kv.MutationResult;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;

/** Whole documents. */
public final class Documents {
  private static final Collection documents = Cases.collection;
  private static final Duration HOUR = Duration.ofHours(1);

  private Documents() {}

  public static void upsertInsertReplaceGetRemove() {
    String key = "java-documents";
    Cases.fails(() -> documents.get(key), DocumentNotFoundException.class);
    Cases.fails(() -> documents.replace(key, 1), DocumentNotFoundException.class);
    MutationResult inserted = documents.insert(key, JsonObject.create().put("a", 1));
    Cases.holds(inserted.mutationToken().isPresent(), "no mutation token");
    Cases.fails(() -> documents.insert(key, 2), DocumentExistsException.class);
    documents.upsert(key, JsonObject.create().put("a", 2));
    Cases.same(JsonObject.create().put("a", 2), documents.get(key).contentAsObject());
    long cas = documents.replace(key, JsonObject.create().put("a", 3)).cas();
    Cases.same(cas, documents.get(key).cas());
    Cases.same(true, documents.exists(key).exists());
    documents.remove(key);
    Cases.same(false, documents.exists(key).exists());
    Cases.fails(() -> documents.remove(key), DocumentNotFoundException.class);
  }

  public static void aCasThatCameTooLateChangesNothing() {
    String key = "java-cas";
    long old = documents.upsert(key, 1).cas();
    long current = documents.upsert(key, 2).cas();
    Cases.fails(() -> documents.replace(key, 3, replaceOptions().cas(old)), CasMismatchException.class);
    Cases.fails(() -> documents.remove(key, removeOptions().cas(old)), CasMismatchException.class);
    Cases.same(2, documents.get(key).contentAs(Integer.class));
    documents.remove(key, removeOptions().cas(current));
  }

  public static void counters() {
    String key = "java-counter";
    BinaryCollection binary = documents.binary();
    Cases.fails(() -> binary.increment(key), DocumentNotFoundException.class);
    Cases.same(10L, binary.increment(key, incrementOptions().initial(10)).content());
    Cases.same(15L, binary.increment(key, incrementOptions().delta(5)).content());
    Cases.same(0L, binary.decrement(key, decrementOptions().delta(20)).content());
    Cases.same(0, documents.get(key).contentAs(Integer.class));
    documents.upsert(key, JsonObject.create());
    // The SDK has a word for it in parts of documents only.
    Cases.holds(Cases.fails(() -> binary.increment(key), CouchbaseException.class).toString().contains("DELTA_BADVAL"), key);
  }

  public static void appendAndPrepend() {
    String key = "java-append";
    BinaryCollection binary = documents.binary();
    Cases.fails(() -> binary.append(key, bytes("x")), DocumentNotFoundException.class);
    documents.upsert(key, bytes("b"), upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    binary.append(key, bytes("c"));
    binary.prepend(key, bytes("a"));
    GetResult found = documents.get(key, getOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    Cases.same("abc", new String(found.contentAsBytes(), StandardCharsets.UTF_8));
  }

  public static void expiry() {
    String key = "java-expiry";
    documents.upsert(key, 1, upsertOptions().expiry(HOUR));
    Duration left = left(key);
    Cases.holds(left.compareTo(Duration.ofMinutes(50)) > 0 && left.compareTo(HOUR) <= 0, left);
    documents.upsert(key, 2, upsertOptions().preserveExpiry(true));
    Cases.holds(left(key) != null, "the expiry was not kept");
    documents.touch(key, Duration.ofDays(400));
    Cases.holds(left(key).compareTo(Duration.ofDays(399)) > 0, left(key));
    Cases.same(2, documents.getAndTouch(key, HOUR).contentAs(Integer.class));
    Cases.holds(left(key).compareTo(HOUR) <= 0, left(key));
    documents.replace(key, 3);
    Cases.same(null, left(key));
    Cases.fails(() -> documents.touch(key + "-absent", HOUR), DocumentNotFoundException.class);
  }

  private static Duration left(String key) {
    GetResult found = documents.get(key, getOptions().withExpiry(true));
    return found.expiryTime().map(time -> Duration.between(Instant.now(), time)).orElse(null);
  }

  public static void whatHasExpiredIsGone() {
    String key = "java-expired";
    documents.upsert(key, 1, upsertOptions().expiry(Duration.ofSeconds(1)));
    while (documents.exists(key).exists()) {
      Thread.onSpinWait();
    }
    Cases.fails(() -> documents.get(key), DocumentNotFoundException.class);
    documents.insert(key, 2);
  }

  public static void locks() {
    String key = "java-lock";
    long cas = documents.upsert(key, 1).cas();
    GetResult locked = documents.getAndLock(key, Duration.ofSeconds(30));
    Cases.same(1, locked.contentAs(Integer.class));
    Cases.holds(locked.cas() != cas, "the lock has the document's cas");
    Class<?>[] refused = {TimeoutException.class, DocumentLockedException.class};
    Cases.fails(() -> documents.upsert(key, 2, upsertOptions().timeout(Cases.SHORT)), refused);
    Cases.fails(() -> documents.getAndLock(key, HOUR, getAndLockOptions().timeout(Cases.SHORT)), refused);
    documents.unlock(key, locked.cas());
    Cases.fails(() -> documents.unlock(key, locked.cas()), DocumentNotLockedException.class);
    GetResult again = documents.getAndLock(key, Duration.ofSeconds(30));
    documents.replace(key, 3, replaceOptions().cas(again.cas()));
    documents.upsert(key, 4);
  }

  public static void durableWrites() {
    for (DurabilityLevel level : DurabilityLevel.values()) {
      String key = "java-durable-" + level;
      documents.insert(key, 1, insertOptions().durability(level));
      documents.upsert(key, 2, upsertOptions().durability(level));
      documents.replace(key, 3, replaceOptions().durability(level));
      documents.remove(key, removeOptions().durability(level));
    }
  }

  public static void manyAtATime() {
    List<String> keys = IntStream.range(0, 500).mapToObj(i -> "java-many-" + i).toList();
    Flux.fromIterable(keys).flatMap(key -> documents.reactive().upsert(key, JsonObject.create().put("key", key))).blockLast();
    List<String> found =
        Flux.fromIterable(keys)
            .flatMapSequential(key -> documents.reactive().get(key))
            .map(result -> result.contentAsObject().getString("key"))
            .collectList()
            .block();
    Cases.same(keys, found);
  }

  public static void sizesCompressedOrNot() {
    for (int size : new int[] {0, 1, 1000, 1 << 20, 19 << 20}) {
      String key = "java-size-" + size;
      documents.upsert(key, new byte[size], upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE).timeout(HOUR));
      GetResult found = documents.get(key, getOptions().transcoder(RawBinaryTranscoder.INSTANCE).timeout(HOUR));
      Cases.same(size, found.contentAsBytes().length);
      documents.remove(key);
    }
    Cases.fails(
        () -> documents.upsert("java-too-large", new byte[21 << 20], upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE).timeout(HOUR)),
        ValueTooLargeException.class);
  }

  public static void replicasAreTheDocumentItself() {
    documents.upsert("java-replica", 7);
    Cases.same(7, documents.getAnyReplica("java-replica").contentAs(Integer.class));
    Cases.same(1L, documents.getAllReplicas("java-replica").count());
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
