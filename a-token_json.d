token_json.o: src/text/token_json.c src/text/token_json.h src/base/json.h \
 include/fsdp/base.h src/text/utf8.h
src/text/token_json.h:
src/base/json.h:
include/fsdp/base.h:
src/text/utf8.h:
