package ottla.judge;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.function.IntSupplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;

/** Turns what a test sets up inside the JVM, login sections and classes of its own, into settings of the broker process. */
final class Security {
    private static final String STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    private static final Map<String, List<String>> MECHANISMS = Map.of(
        "PlainLoginModule", List.of("PLAIN"),
        "ScramLoginModule", List.of("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "OAuthBearerLoginModule", List.of("OAUTHBEARER"),
        "Krb5LoginModule", List.of("GSSAPI"));

    private static final String UNSECURED =
        "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler";

    /** Principals that the tests' builders return later than at the start. */
    private static final List<String> USERS = List.of(
        "client", "broker", "server", "user", "Unauthorized", "ThrottledPrincipal", "UnboundedPrincipal", "User");

    /** Authorizers of tests that allow everything except to the principal `Unauthorized`. */
    private static final Set<String> ALL_BUT_UNAUTHORIZED = Set.of(
        "kafka.server.RequestQuotaTest$KraftTestAuthorizer", "kafka.server.RequestQuotaTest$TestAuthorizer");

    /** Authorizers of tests that allow everything except SCRAM credentials to the principal `Unauthorized`. */
    private static final Set<String> ALL_BUT_CREDENTIALS = Set.of(
        "kafka.server.AlterCredentialsTest$TestStandardAuthorizer", "kafka.server.AlterCredentialsTest$TestAuthorizer",
        "kafka.server.DescribeCredentialsTest$TestStandardAuthorizer", "kafka.server.DescribeCredentialsTest$TestAuthorizer");

    /** Builders of principals from certificates, as rules of `ssl.principal.mapping.rules`. */
    private static final Map<String, String> RULES = Map.of(
        "kafka.api.SslEndToEndAuthorizationTest$TestPrincipalBuilder",
        "RULE:^O=A server,CN=.*$/server/,RULE:^O=A .*,CN=super-user$/server/,DEFAULT",
        "kafka.api.SslAdminIntegrationTest$TestPrincipalBuilder",
        "RULE:^O=A server,CN=.*$/server/,RULE:^O=A .*,CN=super-user$/server/,RULE:^O=A .*,CN=client$/client/");

    private Security() {}

    static void apply(Ottla broker, Settings file, IntSupplier freePort, List<Door> doors) {
        // Kafka 4 stores passwords of key stores in the clear. Ottla encrypts them, or refuses.
        file.putIfAbsent("password.encoder.secret", "judge-secret");
        loginSections(file);
        String login = System.getProperty("java.security.auth.login.config");
        if (login != null && file.containsKey("zookeeper.connect")) file.put("java.security.auth.login.config", login);
        if (ALL_BUT_UNAUTHORIZED.contains(file.getOrDefault("authorizer.class.name", ""))) {
            file.put("authorizer.class.name", STANDARD);
            file.merge("super.users", "User:ANONYMOUS", (old, more) -> old + ";" + more);
        }
        if (isAllButCredentials(file)) {
            file.put("authorizer.class.name", STANDARD);
            file.put("allow.everyone.if.no.acl.found", "true");
            file.merge("super.users", "User:ANONYMOUS", (old, more) -> old + ";" + more);
        }
        for (String listener : listeners(file)) {
            String key = "listener.name." + listener.toLowerCase() + ".principal.builder.class";
            String builder = file.getOrDefault(key, file.get("principal.builder.class"));
            if (builder == null) continue;
            file.remove(key);
            if (protocol(file, listener).equals("PLAINTEXT")) {
                door(broker, file, listener, builder, freePort, doors);
            } else if (RULES.containsKey(builder)) {
                file.put("listener.name." + listener.toLowerCase() + ".ssl.principal.mapping.rules", RULES.get(builder));
            } else {
                file.put(key, builder);  // Ottla refuses it by name
            }
        }
        file.remove("principal.builder.class");
    }

    static boolean isAllButCredentials(Settings file) {
        return ALL_BUT_CREDENTIALS.contains(file.getOrDefault("authorizer.class.name", ""));
    }

    static void denyCredentials(Ottla broker) {
        ResourcePattern cluster = new ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL);
        try (Admin admin = broker.admin()) {
            admin.createAcls(Stream.of(AclOperation.ALTER, AclOperation.DESCRIBE).map(operation -> new AclBinding(
                cluster, new AccessControlEntry("User:Unauthorized", "*", operation, AclPermissionType.DENY))).toList()).all().get();
        } catch (InterruptedException | ExecutionException failure) {
            throw new IllegalStateException(failure);
        }
    }

    static List<String> listeners(Settings file) {
        return Settings.names(file.getOrDefault("listeners", "")).stream()
            .map(each -> each.substring(0, each.indexOf("://")).toUpperCase()).toList();
    }

    static String protocol(Settings file, String listener) {
        for (String pair : Settings.names(file.getOrDefault("listener.security.protocol.map", ""))) {
            String[] parts = pair.split(":");
            if (parts[0].equalsIgnoreCase(listener)) return parts[1].toUpperCase();
        }
        return listener;
    }

    static void setProtocol(Settings file, String listener, String protocol) {
        List<String> pairs = new ArrayList<>();
        for (String name : listeners(file)) pairs.add(name + ":" + (name.equals(listener) ? protocol : protocol(file, name)));
        file.put("listener.security.protocol.map", String.join(",", pairs));
    }

    static void add(Settings file, String listener, String protocol, int port, int advertised) {
        if (!file.containsKey("advertised.listeners")) file.put("advertised.listeners", file.get("listeners"));
        file.merge("listeners", listener + "://localhost:" + port, (old, more) -> old + "," + more);
        file.merge("advertised.listeners", listener + "://localhost:" + advertised, (old, more) -> old + "," + more);
        setProtocol(file, listener, protocol);
    }

    static void plain(Settings file, String listener, String login, Map<String, String> users) {
        String prefix = "listener.name." + listener.toLowerCase() + ".";
        file.put(prefix + "sasl.enabled.mechanisms", "PLAIN");
        file.put(prefix + "plain.sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required " + login
            + users.entrySet().stream().map(each -> " user_" + each.getKey() + "=\"" + each.getValue() + "\"")
                .collect(Collectors.joining()) + ";");
    }

    private static void door(
        Ottla broker, Settings file, String listener, String className, IntSupplier freePort, List<Door> doors) {
        try {
            KafkaPrincipalBuilder builder = (KafkaPrincipalBuilder) Class.forName(className).getDeclaredConstructor().newInstance();
            if (builder instanceof Configurable configurable) configurable.configure(Map.of());
            int front = broker.port(listener);
            int saslPort = broker.keep(listener + ".SASL", freePort);
            int plainPort = broker.keep(listener + ".PLAIN", freePort);
            Set<String> users = new LinkedHashSet<>(USERS);
            users.add(builder.build(new PlaintextAuthenticationContext(java.net.InetAddress.getLoopbackAddress(), listener)).getName());
            if (!file.containsKey("advertised.listeners")) file.put("advertised.listeners", file.get("listeners"));
            file.put("listeners", Settings.names(file.get("listeners")).stream()
                .map(each -> each.toUpperCase().startsWith(listener + "://") ? listener + "://localhost:" + saslPort : each)
                .collect(Collectors.joining(",")));
            setProtocol(file, listener, "SASL_PLAINTEXT");
            add(file, listener + "_PLAIN", "PLAINTEXT", plainPort, front);
            plain(file, listener, "", users.stream().collect(Collectors.toMap(each -> each, each -> Door.PASSWORD)));
            doors.add(new Door(listener, front, builder, saslPort, plainPort));
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** Sections of the JVM's login configuration, `KafkaServer` or `<listener>.KafkaServer`, as settings of each listener. */
    private static void loginSections(Settings file) {
        for (String listener : listeners(file)) {
            if (!protocol(file, listener).startsWith("SASL")) continue;
            AppConfigurationEntry[] entries = null;
            for (String section : List.of(listener.toLowerCase() + ".KafkaServer", "KafkaServer")) {
                try {
                    if (entries == null) entries = Configuration.getConfiguration().getAppConfigurationEntry(section);
                } catch (SecurityException noFile) {
                    return;
                }
            }
            if (entries == null) continue;
            String prefix = "listener.name." + listener.toLowerCase() + ".";
            String enabled = file.getOrDefault(prefix + "sasl.enabled.mechanisms", file.getOrDefault("sasl.enabled.mechanisms", "GSSAPI"));
            // Kafka accepts tokens without a signature if no keys are configured. Ottla wants to be told.
            if (Settings.names(enabled).contains("OAUTHBEARER") && !file.containsKey("sasl.oauthbearer.jwks.endpoint.url"))
                file.put(prefix + "oauthbearer.sasl.server.callback.handler.class", UNSECURED);
            for (AppConfigurationEntry entry : entries) {
                String module = entry.getLoginModuleName();
                for (String mechanism : MECHANISMS.getOrDefault(module.substring(module.lastIndexOf('.') + 1), List.of())) {
                    String key = prefix + mechanism.toLowerCase() + ".sasl.jaas.config";
                    if (!Settings.names(enabled).contains(mechanism) || file.containsKey(key)) continue;
                    file.put(key, entry.getLoginModuleName() + " required" + entry.getOptions().entrySet().stream()
                        .map(option -> " " + option.getKey() + "=\"" + option.getValue() + "\"").collect(Collectors.joining()) + ";");
                }
            }
        }
    }
}
