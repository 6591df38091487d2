package ottla.judge;

import java.io.IOException;
import java.util.Map;
import java.util.Properties;
import java.util.function.IntSupplier;

/** How the shim itself talks to a broker: through a plain listener of the test, or one more that only it knows. */
final class Access {
    private static final String LISTENER = "OTTLA_JUDGE";
    private static final String USER = "ottla-judge";
    private static final String PASSWORD = "judge-secret";

    private final int port;
    private final boolean isSasl;

    private Access(int port, boolean isSasl) {
        this.port = port;
        this.isSasl = isSasl;
    }

    static Access give(Ottla broker, Settings file, boolean hasDoors, IntSupplier freePort) {
        // Delegation tokens are described to authenticated clients only.
        boolean isSasl = file.containsKey("authorizer.class.name")
            || file.containsKey("delegation.token.secret.key") || file.containsKey("delegation.token.master.key");
        if (!isSasl && !hasDoors) {
            for (String listener : Security.listeners(file))
                if (Security.protocol(file, listener).equals("PLAINTEXT")) return new Access(broker.port(listener), false);
        }
        int port = broker.keep(LISTENER, freePort);
        Security.add(file, LISTENER, isSasl ? "SASL_PLAINTEXT" : "PLAINTEXT", port, port);
        String login = "username=\"" + USER + "\" password=\"" + PASSWORD + "\"";
        if (isSasl) {
            Security.plain(file, LISTENER, login, Map.of(USER, PASSWORD));
            if (file.containsKey("authorizer.class.name")) file.merge("super.users", "User:" + USER, (old, more) -> old + ";" + more);
        }
        if (hasDoors) {
            // Brokers do not go through doors.
            file.remove("security.inter.broker.protocol");
            file.put("inter.broker.listener.name", LISTENER);
            file.put("sasl.mechanism.inter.broker.protocol", "PLAIN");
        }
        return new Access(port, isSasl);
    }

    Wire connect() throws IOException {
        Wire wire = new Wire(port);
        if (!isSasl) return wire;
        try {
            return wire.as(USER, PASSWORD);
        } catch (IOException failure) {
            wire.close();
            throw failure;
        }
    }

    Properties client() {
        Properties found = new Properties();
        found.put("bootstrap.servers", "localhost:" + port);
        if (isSasl) {
            found.put("security.protocol", "SASL_PLAINTEXT");
            found.put("sasl.mechanism", "PLAIN");
            found.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"" + USER
                + "\" password=\"" + PASSWORD + "\";");
        }
        return found;
    }
}
