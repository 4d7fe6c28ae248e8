import java.io.DataInputStream;
import java.io.IOException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;

/** Which of a library's methods no family calls. Read from the constant pools of the program's own classes. */
final class Surface {
    private Surface() {}

    /** The names of `api`'s public methods that occur nowhere in the program and do not match `other`. */
    static Set<String> unused(String other, Class<?>... api) throws Exception {
        URI home = Surface.class.getProtectionDomain().getCodeSource().getLocation().toURI();
        Set<String> named = new HashSet<>();
        try (Stream<Path> files = Files.list(Path.of(home))) {
            for (Path file : files.filter(f -> f.toString().endsWith(".class")).toList()) {
                named.addAll(constants(file));
            }
        }
        Set<String> unused = new TreeSet<>();
        for (Class<?> type : api) {
            for (Method method : type.getMethods()) {
                String name = method.getName();
                if (method.getDeclaringClass() != Object.class && !Modifier.isStatic(method.getModifiers())
                        && !named.contains(name) && !name.matches(other)) {
                    unused.add(name);
                }
            }
        }
        return unused;
    }

    /** Every UTF-8 constant of a class file (Java Virtual Machine Specification, 4.4). */
    private static List<String> constants(Path file) throws IOException {
        List<String> names = new java.util.ArrayList<>();
        try (DataInputStream in = new DataInputStream(Files.newInputStream(file))) {
            in.skipNBytes(8);
            int count = in.readUnsignedShort();
            for (int i = 1; i < count; i++) {
                int tag = in.readUnsignedByte();
                switch (tag) {
                    case 1 -> names.add(in.readUTF());
                    case 7, 8, 16, 19, 20 -> in.skipNBytes(2);
                    case 15 -> in.skipNBytes(3);
                    case 3, 4, 9, 10, 11, 12, 17, 18 -> in.skipNBytes(4);
                    case 5, 6 -> {
                        in.skipNBytes(8);
                        i++;
                    }
                    default -> throw new IOException("constant of kind " + tag);
                }
            }
        }
        return names;
    }
}
