// Reads a topic from its beginning to its end with Kafka's own consumer, and prints one line for each record: its
// partition, the partition that Kafka's own producer would have chosen for its key, the key and the value.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.utils.Utils;

public class ReadTopic {
  public static void main(String[] args) {
    Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "check.crcs", true);
    try (var consumer =
        new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
      List<TopicPartition> partitions =
          consumer.partitionsFor(args[1]).stream()
              .map(each -> new TopicPartition(args[1], each.partition()))
              .toList();
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      var ends = consumer.endOffsets(partitions);
      while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
        for (var record : consumer.poll(Duration.ofMillis(100))) {
          int chosen =
              record.key() == null
                  ? -1
                  : Utils.toPositive(Utils.murmur2(record.key().getBytes())) % partitions.size();
          System.out.println(
              record.partition() + "\t" + chosen + "\t" + record.key() + "\t" + record.value());
        }
      }
    }
  }
}
