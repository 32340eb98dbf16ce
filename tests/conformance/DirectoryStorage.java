import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.zip.CRC32C;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Remote storage for Kafka in the layout of Ottla's store "directory": see segment_objects.py. */
public class DirectoryStorage implements RemoteStorageManager {
    private static final String[] SUFFIXES =
        {".log", ".index", ".timeindex", ".snapshot", ".leader-epochs", ".txnindex", ".manifest"};
    private Path root;

    @Override
    public void configure(Map<String, ?> settings) {
        root = Path.of(settings.get("directory").toString());
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(
            RemoteLogSegmentMetadata segment, LogSegmentData data) throws RemoteStorageException {
        ByteBuffer epochs = data.leaderEpochIndex().duplicate();
        byte[] entries = new byte[epochs.remaining()];
        epochs.get(entries);
        ByteBuffer custom = ByteBuffer.allocate(1 + SUFFIXES.length * 13).put((byte) 1);
        try {
            Files.createDirectories(file(segment, 0).getParent());
            put(segment, 0, Files.readAllBytes(data.logSegment()), custom);
            put(segment, 1, Files.readAllBytes(data.offsetIndex()), custom);
            put(segment, 2, Files.readAllBytes(data.timeIndex()), custom);
            put(segment, 3, Files.readAllBytes(data.producerSnapshotIndex()), custom);
            put(segment, 4, entries, custom);
            if (data.transactionIndex().isPresent()) {
                put(segment, 5, Files.readAllBytes(data.transactionIndex().get()), custom);
            }
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
        return Optional.of(new CustomMetadata(Arrays.copyOf(custom.array(), custom.position())));
    }

    private void put(RemoteLogSegmentMetadata segment, int kind, byte[] bytes, ByteBuffer custom)
            throws IOException {
        Path made = file(segment, kind);
        Path unfinished = made.resolveSibling(made.getFileName() + ".part");
        Files.write(unfinished, bytes);
        Files.move(unfinished, made, StandardCopyOption.ATOMIC_MOVE);
        CRC32C crc = new CRC32C();
        crc.update(bytes);
        custom.put((byte) kind).putLong(bytes.length).putInt((int) crc.getValue());
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start)
            throws RemoteStorageException {
        return fetchLogSegment(segment, start, Integer.MAX_VALUE - 1);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end)
            throws RemoteStorageException {
        byte[] bytes = read(segment, 0);
        int from = Math.min(start, bytes.length);
        return new ByteArrayInputStream(bytes, from, Math.min(end + 1, bytes.length) - from);
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type)
            throws RemoteStorageException {
        int kind = switch (type) {
            case OFFSET -> 1;
            case TIMESTAMP -> 2;
            case PRODUCER_SNAPSHOT -> 3;
            case LEADER_EPOCH -> 4;
            case TRANSACTION -> 5;
        };
        return new ByteArrayInputStream(read(segment, kind));
    }

    private byte[] read(RemoteLogSegmentMetadata segment, int kind) throws RemoteStorageException {
        try {
            return Files.readAllBytes(file(segment, kind));
        } catch (IOException error) {
            throw new RemoteResourceNotFoundException(error);
        }
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment)
            throws RemoteStorageException {
        try {
            for (int kind = 0; kind < SUFFIXES.length; kind++) {
                Files.deleteIfExists(file(segment, kind));
            }
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    private Path file(RemoteLogSegmentMetadata segment, int kind) {
        var id = segment.remoteLogSegmentId();
        var at = id.topicIdPartition();
        String name = String.format("%020d-%s%s", segment.startOffset(), id.id(), SUFFIXES[kind]);
        return root.resolve(at.topicId().toString())
            .resolve(Integer.toString(at.partition()))
            .resolve(name);
    }

    @Override
    public void close() {
    }
}
