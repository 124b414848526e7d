pre_tokenizer_json.o: src/text/pre_tokenizer_json.c src/base/alloc.h \
 include/fsdp/base.h src/text/pre_tokenizer_ops.h \
 src/text/pre_tokenizer.h src/base/json.h src/text/aligned_text.h \
 src/text/utf8.h src/text/char_class.h src/text/regex.h \
 src/text/token_json.h src/text/word_splitter.h
src/base/alloc.h:
include/fsdp/base.h:
src/text/pre_tokenizer_ops.h:
src/text/pre_tokenizer.h:
src/base/json.h:
src/text/aligned_text.h:
src/text/utf8.h:
src/text/char_class.h:
src/text/regex.h:
src/text/token_json.h:
src/text/word_splitter.h:
