package ottla.judge;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectMethod;

import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestInstancePostProcessor;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs test classes and writes one line for each test: outcome, milliseconds, name, first line of the failure, separated by tabs.
 * Arguments: CLASS or CLASS#METHOD. The property `ottla.judge.only` is a pattern for names; tests without a match do not run.
 */
public final class Judge {
    /** The test object of the test that runs. */
    static volatile Object instance;

    private static final Pattern ONLY = Pattern.compile(System.getProperty("ottla.judge.only", ""));
    private static final Pattern NEVER = Pattern.compile(System.getProperty("ottla.judge.never", "(?!)"));

    /** Registered for every test class. */
    public static final class Extension implements ExecutionCondition, TestInstancePostProcessor {
        @Override
        public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
            if (context.getTestMethod().isEmpty()) return ConditionEvaluationResult.enabled("a class");
            String name = name(
                context.getRequiredTestClass().getName(), context.getRequiredTestMethod().getName(), context.getDisplayName());
            // The container of a parameterized test has no parameters in its name yet.
            boolean isContainer = context.getTestInstance().isEmpty();
            if (!isContainer && (!ONLY.matcher(name).find() || NEVER.matcher(name).find()))
                return ConditionEvaluationResult.disabled("not chosen");
            return ConditionEvaluationResult.enabled("chosen");
        }

        @Override
        public void postProcessTestInstance(Object testInstance, ExtensionContext context) {
            instance = testInstance;
        }
    }

    static String name(String className, String method, String display) {
        String rest = display.replaceAll("\\b" + method + "\\b", "");
        // The harness lists all properties of a cluster after its type.
        rest = rest.replaceFirst("(Type=[A-Za-z-]+),.*", "$1");
        // Types of parameters say nothing.
        rest = rest.replaceAll("\\(([A-Za-z]+(, )?)*\\)", "").replaceAll("[\\s\"]+", " ").replaceFirst("^[. ]+", "").strip();
        String simple = className.substring(className.lastIndexOf('.') + 1);
        return simple + "." + method + (rest.isEmpty() ? "" : "." + rest);
    }

    private static final class Reporter implements TestExecutionListener {
        private final PrintStream out;
        private final Map<String, Long> started = new HashMap<>();

        Reporter(PrintStream out) {
            this.out = out;
        }

        private static String nameOf(TestIdentifier test) {
            if (test.getSource().orElse(null) instanceof MethodSource method)
                return name(method.getClassName(), method.getMethodName(), test.getDisplayName());
            if (test.getSource().orElse(null) instanceof ClassSource source)
                return source.getClassName().substring(source.getClassName().lastIndexOf('.') + 1);
            return test.getDisplayName();
        }

        @Override
        public void executionStarted(TestIdentifier test) {
            started.put(test.getUniqueId(), System.currentTimeMillis());
            if (test.isTest()) {
                Ottla.begin(nameOf(test));
                out.println("running\t0\t" + nameOf(test) + "\t");
            }
        }

        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            if (test.isTest() && !reason.equals("not chosen")) out.println("skipped\t0\t" + nameOf(test) + "\t" + line(reason));
        }

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            boolean isFailure = result.getStatus() == TestExecutionResult.Status.FAILED;
            if (!test.isTest() && !isFailure) return;
            long took = System.currentTimeMillis() - started.getOrDefault(test.getUniqueId(), System.currentTimeMillis());
            String outcome = switch (result.getStatus()) {
                case SUCCESSFUL -> Ottla.startedSinceBegin() > 0 ? "passed" : "alone";
                case ABORTED -> "skipped";
                case FAILED -> "failed";
            };
            String text = result.getThrowable().map(Judge::trace).orElse("");
            out.println(outcome + "\t" + took + "\t" + nameOf(test) + "\t" + line(text));
            Ottla.end(isFailure);
        }
    }

    private static String trace(Throwable thrown) {
        StringWriter text = new StringWriter();
        thrown.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    private static String line(String text) {
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", " ").replace("\r", "");
    }

    public static void main(String[] words) throws Exception {
        PrintStream out = new PrintStream(new java.io.FileOutputStream(System.getProperty("ottla.judge.report")), true);
        Ottla.prepare();
        List<DiscoverySelector> selectors = new ArrayList<>();
        for (String word : words) selectors.add(word.contains("#") ? selectMethod(word) : selectClass(word));
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
            .selectors(selectors)
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .configurationParameter("junit.jupiter.execution.parallel.enabled", "false")
            .configurationParameter(
                "junit.jupiter.execution.timeout.default", System.getProperty("ottla.judge.timeout", "180") + " s")
            .configurationParameter("junit.jupiter.execution.timeout.thread.mode.default", "SAME_THREAD")
            .build();
        LauncherFactory.create().execute(request, new Reporter(out));
        out.println("done\t0\t\t");
        System.exit(0);
    }

    private Judge() {}
}
