return {string.find('aXb', '%u'), string.gsub('hello', 'l+', {ll = 1}), string.format('%5.2f %q %s', 1, 'a', {})}
