package ottla.judge;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.IntSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;

/** One broker: an `ottla serve` process with the settings that a test asked for. */
public final class Ottla {
    private static final Path ROOT = Path.of(System.getProperty("ottla.judge.dir"));
    private static final List<String> COMMAND = List.of(System.getProperty("ottla.judge.command").split(" "));
    private static final Random RANDOM = new Random();
    /** A broker ends when the thread that started it ends (PR_SET_PDEATHSIG): one thread for all, which lives as long as the JVM. */
    private static final ExecutorService STARTER = Executors.newSingleThreadExecutor(work -> {
        Thread thread = new Thread(work, "ottla-judge");
        thread.setDaemon(true);
        return thread;
    });
    private static final List<Ottla> OF_TEST = new CopyOnWriteArrayList<>();
    private static final Set<Integer> GIVEN = ConcurrentHashMap.newKeySet();
    private static volatile int starts = 0;
    private static volatile int count = 0;
    private static volatile Path directory = ROOT;

    public final int id;
    private final Quorum quorum;
    private final Settings settings;
    private final Map<String, Integer> ports = new TreeMap<>();
    private final Path log;
    private final List<Door> doors = new ArrayList<>();
    private Access control;
    private volatile Process process;
    private volatile boolean wasStarted = false;

    /** Start the thread now: tests look for threads that were not there when they began. */
    static void prepare() throws Exception {
        STARTER.submit(() -> {}).get();
    }

    static void begin(String test) {
        starts = 0;
        Throttle.begin();
        String name = test.replaceAll("[^A-Za-z0-9.=]+", "_");
        directory = ROOT.resolve(name.length() < 200 ? name : name.substring(0, 190) + name.hashCode());
    }

    static int startedSinceBegin() {
        return starts;
    }

    /** End what a test left running, and keep the brokers' logs if it failed. */
    static void end(boolean failed) {
        for (Ottla each : OF_TEST) {
            if (each.isRunning()) each.process.destroyForcibly();
            each.closeDoors();
        }
        OF_TEST.clear();
        GIVEN.clear();
        if (!failed && !directory.equals(ROOT)) {
            try (var files = Files.walk(directory)) {
                files.sorted(java.util.Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            } catch (IOException ignored) {
                // Nothing was written.
            }
        }
    }

    public Ottla(Quorum quorum, int id, Map<String, ?> originals) {
        this.quorum = quorum;
        this.id = id;
        this.settings = Settings.ofBroker(originals);
        this.log = directory.resolve("broker-" + id + "." + (++count));
        quorum.brokers.removeIf(other -> other.id == id && !other.isRunning());
        quorum.brokers.add(this);
        OF_TEST.add(this);
    }

    public Quorum quorum() {
        return quorum;
    }

    public boolean isRunning() {
        return process != null && process.isAlive();
    }

    /** The port of a listener; 0 before the first start. */
    public int port(String listener) {
        return ports.getOrDefault(listener.toUpperCase(), 0);
    }

    List<File> logDirs() {
        String text = settings.getOrDefault("log.dirs", settings.getOrDefault("log.dir", ""));
        return Settings.names(text).stream().map(File::new).collect(Collectors.toList());
    }

    /** A port of this name, which stays the same when the broker starts again. */
    int keep(String name, IntSupplier freePort) {
        return ports.computeIfAbsent(name, ignored -> freePort.getAsInt());
    }

    /** The port of the first listener that a test asked for. */
    public int clientPort() {
        String first = Settings.names(settings.get("listeners")).get(0);
        return port(first.substring(0, first.indexOf("://")));
    }

    boolean wasStarted() {
        return wasStarted;
    }

    public void start() {
        wasStarted = true;
        Throttle.register();
        starts++;
        Settings file = new Settings();
        file.putAll(settings);
        String connect = quorum.connect();
        if (connect != null) {
            file.put("zookeeper.connect", connect);
            file.putIfAbsent("zookeeper.session.timeout.ms", "6000");
            // The last broker finds no other that could lead.
            file.putIfAbsent("controlled.shutdown.retry.backoff.ms", "100");
        }
        bind(file);
        Security.apply(this, file, Ottla::freePort, doors);
        control = Access.give(this, file, !doors.isEmpty(), Ottla::freePort);
        dropForeignIdentity(file);
        try {
            Files.createDirectories(log.getParent());
            Path properties = Path.of(log + ".properties");
            Files.writeString(properties, file.file());
            List<String> command = new ArrayList<>(List.of("setpriv", "--pdeathsig", "KILL"));
            command.addAll(COMMAND);
            command.addAll(List.of("--config", properties.toString()));
            ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(new File(log + ".log")));
            // The KDC of a test is known to the JVM by a property, to other programs by a variable.
            String kerberos = System.getProperty("java.security.krb5.conf");
            if (kerberos != null) builder.environment().put("KRB5_CONFIG", kerberos);
            process = STARTER.submit(builder::start).get();
        } catch (Exception failure) {
            throw new RuntimeException("ottla serve could not be started", failure);
        }
        // The first broker becomes the controller: tests send requests for a controller to it, as KRaft's brokers forward them.
        // A harness starts its brokers one after the other: wait for the others together.
        if (quorum.running().size() == 1) awaitReady();
        if (!quorum.isIncomplete()) quorum.brokers.stream().filter(each -> each.process != null).forEach(Ottla::awaitReady);
        if (Security.isAllButCredentials(settings)) Security.denyCredentials(this);
    }

    /** Give every listener with port 0 a port, which it keeps when the broker starts again. */
    private void bind(Settings file) {
        List<String> bound = new ArrayList<>();
        for (String listener : Settings.names(file.getOrDefault("listeners", "PLAINTEXT://localhost:0"))) {
            int colon = listener.lastIndexOf(':');
            String name = listener.substring(0, listener.indexOf("://")).toUpperCase();
            int port = Integer.parseInt(listener.substring(colon + 1));
            if (port == 0) port = ports.computeIfAbsent(name, ignored -> freePort());
            ports.put(name, port);
            bound.add(listener.substring(0, colon + 1) + port);
        }
        file.put("listeners", String.join(",", bound));
        file.computeIfPresent("advertised.listeners", (ignored, text) -> Settings.names(text).stream().map(each -> {
            String name = each.substring(0, each.indexOf("://")).toUpperCase();
            return each.endsWith(":0") ? each.substring(0, each.length() - 1) + ports.get(name) : each;
        }).collect(Collectors.joining(",")));
    }

    private static int freePort() {
        while (true) {
            int port = 12_000 + RANDOM.nextInt(18_000);  // below the range of outgoing connections
            if (!GIVEN.add(port)) continue;
            try (ServerSocket ignored = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                return port;
            } catch (IOException taken) {
                continue;
            }
        }
    }

    /** The harness formats directories for KRaft. Ottla writes its own identity there. */
    private static void dropForeignIdentity(Settings file) {
        for (String key : List.of("log.dir", "log.dirs")) {
            for (String path : Settings.names(file.getOrDefault(key, ""))) {
                Path identity = Path.of(path, "meta.properties");
                try {
                    if (Files.exists(identity) && Files.readString(identity).contains("node.id")) Files.delete(identity);
                } catch (IOException failure) {
                    throw new UncheckedIOException(failure);
                }
            }
        }
    }

    /** Wait until this broker knows all brokers that run, and a controller. */
    private void awaitReady() {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (true) {
            if (!process.isAlive()) {
                throw new IllegalStateException("ottla serve ended with " + process.exitValue() + ": " + tail());
            }
            try {
                MetadataResponse told = (MetadataResponse) ask(new MetadataRequest.Builder(List.of(), false).build((short) 9));
                Set<Integer> known = told.brokers().stream().map(Node::id).collect(Collectors.toSet());
                if (told.data().controllerId() >= 0 && known.containsAll(quorum.running())) return;
            } catch (IOException notYet) {
                // It does not listen yet.
            }
            if (System.nanoTime() > deadline) throw new IllegalStateException("ottla serve is not ready: " + tail());
            try {
                Thread.sleep(30);
            } catch (InterruptedException stop) {
                throw new IllegalStateException("interrupted while broker " + id + " starts", stop);
            }
        }
    }

    /** How many lines of the brokers' logs of this test have this text. */
    static long linesWith(String text) {
        long found = 0;
        for (Ottla each : OF_TEST) {
            try (var lines = Files.lines(Path.of(each.log + ".log"))) {
                found += lines.filter(line -> line.contains(text)).count();
            } catch (IOException missing) {
                continue;
            }
        }
        return found;
    }

    private String tail() {
        try {
            String text = Files.readString(Path.of(log + ".log"));
            return text.substring(Math.max(0, text.length() - 1500));
        } catch (IOException missing) {
            return "(no log)";
        }
    }

    private void closeDoors() {
        for (Door door : doors) {
            try {
                door.close();
            } catch (IOException ignored) {
                // It is closed either way.
            }
        }
        doors.clear();
    }

    public void stop(Duration timeout) {
        Process running = process;
        if (running == null) return;
        running.destroy();
        try {
            if (!running.waitFor(Math.min(timeout.toMillis(), 20_000), TimeUnit.MILLISECONDS)) running.destroyForcibly().waitFor();
        } catch (InterruptedException stop) {
            running.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        closeDoors();
        process = null;
    }

    /** Ask this broker, with all permissions. */
    public AbstractResponse ask(AbstractRequest request) throws IOException {
        try (Wire wire = control.connect()) {
            return wire.ask(request);
        }
    }

    /** A client with all permissions. */
    public Admin admin() {
        Properties properties = control.client();
        properties.put("default.api.timeout.ms", "30000");
        return Admin.create(properties);
    }
}
