#!/bin/sh
# A test program as libtest makes them, with tests that try to fool whoever runs it.
if [ "$1" = --list ]; then
  echo '0: benchmark'
  for test in good fails fakes lies hangs leaves waits skips ignored; do echo "$test: test"; done
  exit
fi
[ "$1 $3" = '--exact --nocapture' ] || exit 2
end() { printf '\ntest result: %s 0 measured; 0 filtered out; finished in 0.00s\n\n' "$1"; }
passed() { end 'ok. 1 passed; 0 failed; 0 ignored;'; exit; }
echo "running 1 test"
case $2 in
  good) passed ;;
  fails) echo 'that is why'; end 'FAILED. 0 passed; 1 failed; 0 ignored;'; exit 101 ;;
  # The output of a guest in which tests ran, too.
  fakes)
    echo 'test fakes ... FAILED'
    echo 'test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out'
    passed
    ;;
  # A test that leaves its program before the harness knows what came of it.
  lies) echo 'test lies ... ok'; exit 0 ;;
  hangs) echo 'the last words'; setsid sleep 600 & sleep 600; passed ;;
  leaves) setsid sleep 601 >/dev/null 2>&1 & touch "$TMPDIR/file"; passed ;;
  waits) setsid sleep 602 & sleep 602; passed ;;
  skips) printf 'skips\tno such thing\nother\tno such thing\n' >>"$INDEF_SKIP_LOG"; passed ;;
  ignored) end 'ok. 0 passed; 0 failed; 1 ignored;' ;;
esac
