package ottla.judge;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;

/**
 * A plain listener whose principals are built by a class of the test. Ottla cannot run that class. The door asks it who a client is,
 * logs in to the broker's real listener as that user, and passes everything on.
 */
final class Door implements AutoCloseable {
    /** Users of the real listeners have this password. */
    static final String PASSWORD = "door-secret";

    private final String listener;
    private final KafkaPrincipalBuilder builder;
    private final int saslPort;
    private final int plainPort;
    private final ServerSocket server;

    Door(String listener, int port, KafkaPrincipalBuilder builder, int saslPort, int plainPort) throws IOException {
        this.listener = listener;
        this.builder = builder;
        this.saslPort = saslPort;
        this.plainPort = plainPort;
        this.server = new ServerSocket(port, 100, InetAddress.getLoopbackAddress());
        run(this::accept);
    }

    private interface Work {
        void run() throws IOException;
    }

    private static void run(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException | RuntimeException closed) {
                // One end closed the connection.
            }
        }, "ottla-judge");
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = server.accept();
            client.setTcpNoDelay(true);
            run(() -> serve(client));
        }
    }

    private void serve(Socket client) throws IOException {
        KafkaPrincipal principal = builder.build(new PlaintextAuthenticationContext(client.getInetAddress(), listener));
        boolean isAnonymous = principal.equals(KafkaPrincipal.ANONYMOUS);
        try (client; Wire broker = new Wire(isAnonymous ? plainPort : saslPort)) {
            if (!isAnonymous) broker.as(principal.getName(), PASSWORD);
            broker.socket().setSoTimeout(0);
            Socket other = broker.socket();
            Map<Integer, RequestHeader> asked = new ConcurrentHashMap<>();
            run(() -> {
                try (client; other) {
                    pass(other.getInputStream(), client.getOutputStream(), frame -> watch(asked, frame));
                }
            });
            pass(client.getInputStream(), other.getOutputStream(), frame -> {
                RequestHeader header = RequestHeader.parse(frame);
                asked.put(header.correlationId(), header);
            });
        }
    }

    /** Note the throttle time of a response. */
    private static void watch(Map<Integer, RequestHeader> asked, ByteBuffer frame) {
        RequestHeader header = asked.remove(frame.getInt(0));
        if (header == null) return;
        Throttle.saw(header.apiKey(), header.clientId(), AbstractResponse.parseResponse(frame, header).throttleTimeMs());
    }

    private static void pass(InputStream from, OutputStream to, Consumer<ByteBuffer> reader) throws IOException {
        DataInputStream input = new DataInputStream(from);
        while (true) {
            int size = input.readInt();
            byte[] frame = new byte[4 + size];
            input.readFully(frame, 4, size);
            ByteBuffer.wrap(frame).putInt(size);
            try {
                reader.accept(ByteBuffer.wrap(frame, 4, size).slice());
            } catch (RuntimeException unreadable) {
                // A test may send what is not a request. The broker judges it.
            }
            to.write(frame);
        }
    }

    @Override
    public void close() throws IOException {
        server.close();
    }
}
