regex_class.o: src/text/regex_class.c src/text/regex_class.h \
 src/base/str.h include/fsdp/base.h src/base/assert.h src/text/utf8.h
src/text/regex_class.h:
src/base/str.h:
include/fsdp/base.h:
src/base/assert.h:
src/text/utf8.h:
