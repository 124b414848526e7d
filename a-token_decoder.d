token_decoder.o: src/text/token_decoder.c src/text/token_decoder.h \
 src/base/json.h include/fsdp/base.h src/text/token_texts.h \
 src/base/str.h src/base/alloc.h src/text/byte_alphabet.h \
 src/text/regex.h src/text/token_json.h src/text/utf8.h
src/text/token_decoder.h:
src/base/json.h:
include/fsdp/base.h:
src/text/token_texts.h:
src/base/str.h:
src/base/alloc.h:
src/text/byte_alphabet.h:
src/text/regex.h:
src/text/token_json.h:
src/text/utf8.h:
