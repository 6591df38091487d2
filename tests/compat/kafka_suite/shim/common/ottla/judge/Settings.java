package ottla.judge;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.types.Password;

/** Broker settings as text, from the objects that a test put into its configuration. */
public final class Settings extends TreeMap<String, String> {
    private static final List<String> ONLY_KRAFT = List.of(
        "process.roles", "node.id", "controller.listener.names", "metadata.log.dir", "server.max.startup.time.ms",
        "unstable.feature.versions.enable", "unstable.api.versions.enable", "controller.quorum.voters",
        "controller.quorum.bootstrap.servers", "initial.broker.registration.timeout.ms");

    public Settings() {}

    /** The settings of a broker process: without what only KRaft has, with absolute paths. */
    public static Settings ofBroker(Map<String, ?> originals) {
        Settings found = of(originals);
        if (!found.containsKey("broker.id") && found.containsKey("node.id")) found.put("broker.id", found.get("node.id"));
        List<String> controllers = names(found.getOrDefault("controller.listener.names", ""));
        ONLY_KRAFT.forEach(found::remove);
        for (String key : List.of("listeners", "advertised.listeners"))
            found.computeIfPresent(key, (ignored, text) -> names(text).stream()
                .filter(each -> !controllers.contains(each.substring(0, each.indexOf(':')).toUpperCase()))
                .collect(Collectors.joining(",")));
        found.computeIfPresent("listener.security.protocol.map", (ignored, text) -> names(text).stream()
            .filter(each -> !controllers.contains(each.substring(0, each.indexOf(':')).toUpperCase()))
            .collect(Collectors.joining(",")));
        for (String key : List.of("log.dir", "log.dirs"))
            found.computeIfPresent(key, (ignored, text) ->
                names(text).stream().map(path -> new File(path).getAbsolutePath()).collect(Collectors.joining(",")));
        return found;
    }

    public static Settings of(Map<String, ?> originals) {
        Settings found = new Settings();
        originals.forEach((key, value) -> {
            // One test uses the description of a setting as its name.
            if (value != null && !key.contains(" ")) found.put(key, text(value));
        });
        return found;
    }

    private static String text(Object value) {
        if (value instanceof Password password) return password.value();
        if (value instanceof Class<?> type) return type.getName();
        if (value instanceof Collection<?> many) return many.stream().map(Settings::text).collect(Collectors.joining(","));
        return String.valueOf(value);
    }

    static List<String> names(String text) {
        return new ArrayList<>(Arrays.stream(text.split(",")).map(String::strip).filter(each -> !each.isEmpty()).toList());
    }

    /** As a properties file. */
    String file() {
        StringBuilder out = new StringBuilder();
        forEach((key, value) -> out.append(key).append('=')
            .append(value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "")).append('\n'));
        return out.toString();
    }
}
