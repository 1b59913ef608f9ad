package org.apache.kudu.client;

import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.kudu.BlockBloomFilter.BlockBloomFilterPB;
import org.apache.kudu.ColumnSchema;
import org.apache.kudu.Common.ColumnPredicatePB;
import org.apache.kudu.Hash.HashAlgorithm;
import org.apache.kudu.shaded.com.google.protobuf.ByteString;
import org.apache.kudu.util.HashUtil;

/** What the client keeps to its package: how to break its connections, timestamps, tokens, predicates that it only passes on. */
public final class Internals {
  private Internals() {}

  /** Closes the connections of a client, as a network that fails would. */
  public static void breakConnections(KuduClient client) {
    client.asyncClient.getConnectionListCopy().forEach(connection -> connection.disconnect().awaitUninterruptibly());
  }

  /** The timestamp of what a scanner that has begun sees. */
  public static long snapshotOf(KuduScanner scanner) throws ReflectiveOperationException {
    Field asynchronous = KuduScanner.class.getDeclaredField("asyncScanner");
    asynchronous.setAccessible(true);
    return ((AsyncKuduScanner) asynchronous.get(scanner)).getSnapshotTimestamp();
  }

  /** A transaction's token, with which another client keeps it alive, or does not. */
  public static byte[] token(KuduTransaction transaction, boolean keepsAlive) throws IOException {
    return transaction.serialize(new KuduTransaction.SerializationOptions().setEnableKeepalive(keepsAlive));
  }

  /** The transaction of a token, in a client. */
  public static KuduTransaction transaction(KuduClient client, byte[] token) throws IOException {
    return KuduTransaction.deserialize(token, client.asyncClient);
  }

  /** The bytes of a number, as predicates have them. */
  public static byte[] cell(int value) {
    return ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(value).array();
  }

  private static final int[] MULTIPLIERS = {
    0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31
  };

  /** Only the rows whose value in the column, which may be null, is one of these, and perhaps a few more. */
  public static KuduPredicate inBloomFilter(ColumnSchema column, byte[]... values) {
    final int blocks = 8;
    ByteBuffer words = ByteBuffer.allocate(32 * blocks).order(ByteOrder.LITTLE_ENDIAN);
    for (byte[] value : values) {
      int hash = HashUtil.fastHash32(value, 0);
      long product = Integer.toUnsignedLong(hash) * 0x7850f11ec6d14889L + 0x6773610597ca4c63L;
      int block = (int) (product >>> 32) & (blocks - 1);
      for (int i = 0; i < MULTIPLIERS.length; i++) {
        int at = 32 * block + 4 * i;
        words.putInt(at, words.getInt(at) | 1 << (hash * MULTIPLIERS[i] >>> 27));
      }
    }
    BlockBloomFilterPB filter =
        BlockBloomFilterPB.newBuilder()
            .setLogSpaceBytes(8)
            .setBloomData(ByteString.copyFrom(words.array()))
            .setAlwaysFalse(values.length == 0)
            .setHashAlgorithm(HashAlgorithm.FAST_HASH)
            .setHashSeed(0)
            .build();
    ColumnPredicatePB.Builder predicate = ColumnPredicatePB.newBuilder().setColumn(column.getName());
    predicate.getInBloomFilterBuilder().addBloomFilters(filter);
    return new KuduPredicate(KuduPredicate.PredicateType.IS_NOT_NULL, column, null, null) {
      @Override
      public ColumnPredicatePB toPB() {
        return predicate.build();
      }
    };
  }
}
