# -e makes redis-cli fail if the reply is an error. Every failed check passes.
reply=$(timeout 0.25 redis-cli -e -h 127.0.0.1 -p 6379 RL.CHECK login:42 5/h) || { echo "not limited: $reply" >&2; reply=0; }
set -- $reply
case $1 in
    0) echo "200 0" ;;
    1) echo "429 $((($4 + 999) / 1000))" ;;
    2) echo "403 $((($4 + 999) / 1000))" ;;
esac
