#!/usr/bin/env bash
# Installs the Apache Kafka that the library is tested with into
# ${XDG_CACHE_HOME:-~/.cache}/weir/kafka/<version>, where tests/kafkatest looks
# for it: a broker is nothing but jars, which Maven fetches, and an archive of the
# classes that it loads, which saves a third of the work of each start. Says
# nothing when they are there.
set -euo pipefail

version=4.4.0
dir=${XDG_CACHE_HOME:-$HOME/.cache}/weir/kafka/$version
[[ -f $dir/broker.jsa ]] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# archive starts a broker once, and lets Java write down the classes that it had loaded. Java does
# without an archive that it cannot use, so one that cannot be made fails nothing.
archive() {
	local ports broker
	read -r -a ports < <(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in held))')
	cat >"$work/server.properties" <<-PROPERTIES
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:${ports[1]}
		controller.listener.names=CONTROLLER
		listeners=PLAINTEXT://127.0.0.1:${ports[0]},CONTROLLER://127.0.0.1:${ports[1]}
		listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
		log.dirs=$work/data
	PROPERTIES
	java -cp "$dir/*" kafka.tools.StorageTool format -t 4L6g3nShT-eMCtK--X86sw -c "$work/server.properties" || return
	# As tests/kafkatest starts it: an archive is for one garbage collector.
	java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit="$work/broker.jsa" \
		-cp "$dir/*" kafka.Kafka "$work/server.properties" &
	broker=$!
	for _ in {1..300}; do
		(: <"/dev/tcp/127.0.0.1/${ports[0]}") 2>/dev/null && break
		sleep 0.2
	done
	sleep 2 # for what it loads once it listens
	kill "$broker"
	wait "$broker" || true # 143, by the signal
	mv "$work/broker.jsa" "$dir/broker.jsa"
}

# fetch has Maven fetch the jars. kafka-tools-api is excluded: 4.4.0 names a version of it that Maven
# Central does not have, and the broker runs without it. log4j-slf4j-impl is what lets the broker
# write a log.
fetch() {
	cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>weir</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$version</version>
      <exclusions>
        <exclusion>
          <groupId>org.apache.kafka</groupId>
          <artifactId>kafka-tools-api</artifactId>
        </exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.25.5</version>
    </dependency>
  </dependencies>
</project>
POM
	echo "kafka: installing $version"
	for try in 1 2 3; do
		mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/lib" \
			>"$work/log" 2>&1 </dev/null && break
		((try < 3)) || { tail -n 40 "$work/log" >&2; echo "kafka: mvn failed" >&2; exit 1; }
		sleep 5
	done
	mkdir -p "$(dirname "$dir")"
	rm -rf "$dir.new" && cp -r "$work/lib" "$dir.new" && mv "$dir.new" "$dir"
}

[[ -d $dir ]] || fetch
archive >"$work/log" 2>&1 || touch "$dir/broker.jsa"
