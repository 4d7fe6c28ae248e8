import io.lettuce.core.RedisFuture;
import io.lettuce.core.Value;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.reactive.RedisReactiveCommands;
import io.lettuce.core.api.sync.RedisCommands;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import reactor.core.Exceptions;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Lettuce's three APIs behind the interface of the first, so that one source of a family drives them all. */
enum Styles {
    SYNC, ASYNC, REACTIVE;

    private static final long REPLY_S = 60;

    @SuppressWarnings("unchecked")
    RedisCommands<String, String> of(StatefulRedisConnection<String, String> connection) {
        if (this == SYNC) {
            return connection.sync();
        }
        Class<?> api = this == ASYNC ? RedisAsyncCommands.class : RedisReactiveCommands.class;
        Object target = this == ASYNC ? connection.async() : connection.reactive();
        return (RedisCommands<String, String>) Proxy.newProxyInstance(Styles.class.getClassLoader(),
                new Class<?>[] {RedisCommands.class}, (proxy, method, arguments) -> {
                    try {
                        Method twin = api.getMethod(method.getName(), method.getParameterTypes());
                        return awaited(twin.invoke(target, arguments), method);
                    } catch (InvocationTargetException | ExecutionException e) {
                        throw e.getCause();
                    } catch (RuntimeException e) {
                        throw Exceptions.unwrap(e);
                    }
                });
    }

    private static Object awaited(Object reply, Method method) throws Exception {
        if (reply instanceof RedisFuture<?> future) {
            return future.get(REPLY_S, TimeUnit.SECONDS);
        }
        if (reply instanceof Mono<?> mono) {
            return mono.block();
        }
        if (!(reply instanceof Flux<?> flux)) {
            return reply;
        }
        List<?> elements = flux.collectList().block();
        if (method.getReturnType() == Set.class) {
            return new LinkedHashSet<>(elements);
        }
        if (method.getReturnType() == Map.class) {
            Map<Object, Object> map = new java.util.LinkedHashMap<>();
            elements.forEach(e -> map.put(((io.lettuce.core.KeyValue<?, ?>) e).getKey(),
                    ((io.lettuce.core.KeyValue<?, ?>) e).getValue()));
            return map;
        }
        if (!elements.isEmpty() && elements.get(0).getClass() == Value.class && !method.getName().equals("geohash")) {
            // A stream has no nulls, so optional values are wrapped.
            List<Object> values = new ArrayList<>();
            elements.forEach(e -> values.add(((Value<?>) e).getValueOrElse(null)));
            return values;
        }
        if (method.getReturnType() == List.class) {
            return elements;
        }
        return elements.isEmpty() ? null : elements.size() == 1 ? elements.get(0) : elements;
    }
}
