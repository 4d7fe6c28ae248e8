return cjson.encode(cjson.decode('{"a":[1,2.5,null,true,"\\u00e9"]}'))
