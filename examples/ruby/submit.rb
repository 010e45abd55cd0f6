# Submits a SQL job, watches it through the death of leaders, and reads its result: in Ruby, with nothing of Lockgate but
# the .proto files.
#
#   apt install ruby-grpc ruby-grpc-tools
#   mkdir stubs
#   grpc_tools_ruby_protoc -I proto --ruby_out=stubs --grpc_out=stubs proto/lockgate_proto/v1/*.proto
#   ruby -I stubs examples/ruby/submit.rb HOST:PORT[,HOST:PORT] FOLDER [ROWS]
#
# Task managers write the folder, and this machine reads it. The secret or token is read from ~/.config/lockgate/secret,
# or from the file that LOCKGATE_SECRET_FILE names; LOCKGATE_TLS_AUTHORITY names the authority's certificate where the
# cluster uses TLS. What a client in any language does: docs/grpc-api.md

require "grpc"
require "json"
require "securerandom"
require "lockgate_proto/v1/job_services_pb"

include Lockgate::V1

PATIENCE_S = 60
ENDED = %i[FINISHED FAILED CANCELED]
ROWS_PER_SECOND = 300

# Of two partitions with so many numbers every tenth one, as JSON lines in the folder.
def graph(folder, rows)
  JobGraph.decode_json(JSON.generate(
    name: "every tenth number",
    vertices: [{
      id: "numbers",
      parallelism: 2,
      operators: [
        { id: "read", generator_source: { partitions: 2, rows_per_partition: rows, rows_per_second: ROWS_PER_SECOND } },
        { id: "filter", sql: { query: "SELECT partition, sequence FROM input WHERE sequence % 10 = 0" } },
        { id: "write", file_sink: { path: folder, format: "JSON_LINES" } },
      ],
    }],
    checkpoints: { interval_ms: 500 },
  ))
end

# What every call but GetLeader carries.
def credentials
  configured = ENV["XDG_CONFIG_HOME"] || File.expand_path("~/.config")
  file = ENV["LOCKGATE_SECRET_FILE"] || File.join(configured, "lockgate", "secret")
  File.exist?(file) ? { "authorization" => "Bearer #{File.read(file).strip}" } : {}
end

def channel_credentials
  authority = ENV["LOCKGATE_TLS_AUTHORITY"]
  authority ? GRPC::Core::ChannelCredentials.new(File.read(authority)) : :this_channel_is_insecure
end

CHANNEL_ARGS = {
  # With gRPC's own retries a stream that begins while its server stops may never end.
  "grpc.enable_retries" => 0,
  # A frozen leader closes no connection, and a job may have nothing to report for hours: pings tell the two apart.
  "grpc.keepalive_time_ms" => 10_000,
  "grpc.keepalive_timeout_ms" => 5_000,
  "grpc.http2.max_pings_without_data" => 0,
}

def stub_for(address)
  JobService::Stub.new(address, channel_credentials, channel_args: CHANNEL_ARGS)
end

# Finds the leader, and finds the next one when it dies.
class Cluster
  def initialize(coordinators)
    @coordinators = coordinators
    @stubs = Hash.new { |stubs, address| stubs[address] = stub_for(address) }
    @credentials = credentials
  end

  # Yields a stub of the leader and the metadata of a call, again until the block succeeds. All calls may be repeated.
  def at_leader
    begin
      yield @stubs[@leader ||= leader], @credentials
    rescue GRPC::FailedPrecondition => error
      raise unless error.details.start_with?("not the leader")
      try_again(error)
      retry
    rescue GRPC::Unavailable, GRPC::Cancelled, GRPC::DeadlineExceeded => error
      try_again(error)
      retry
    end
  end

  # The leader answers: what fails from now on has its own time.
  def answered
    @failing_since = nil
  end

  private

  # Any coordinator answers; the record with the highest token is the newest.
  def leader
    records = @coordinators.filter_map do |address|
      @stubs[address].get_leader(GetLeaderRequest.new, deadline: Time.now + 1)
    rescue GRPC::Unavailable, GRPC::DeadlineExceeded
      nil
    end
    newest = records.reject { |record| record.address.empty? }.max_by(&:token)
    raise GRPC::Unavailable.new("no leader at #{@coordinators.join(", ")}") if newest.nil?
    newest.address
  end

  def try_again(error)
    @failing_since ||= Time.now
    raise error if Time.now - @failing_since > PATIENCE_S
    puts "#{@leader}: #{error.details}; looking for the leader" if @leader
    @leader = nil
    sleep 0.1
  end
end

# Prints each change of its state. Returns the status at its end.
def watch(cluster, key)
  status = nil
  cluster.at_leader do |jobs, metadata|
    jobs.watch(WatchRequest.new(job_key: key), metadata: metadata).each do |update|
      cluster.answered
      next unless update.status
      shown = [update.status.state, update.status.attempt]
      puts "#{update.status.state}, attempt #{update.status.attempt} #{update.status.message}".strip if shown != @shown
      @shown, status = shown, update.status
    end
    raise GRPC::Unavailable.new("the stream has ended") unless status && ENDED.include?(status.state)
  end
  status
end

abort "usage: ruby -I stubs submit.rb HOST:PORT[,HOST:PORT] FOLDER [ROWS]" unless ARGV.length.between?(2, 3)
$stdout.sync = true
cluster, folder, rows = Cluster.new(ARGV[0].split(",")), File.expand_path(ARGV[1]), (ARGV[2] || 3_000).to_i
key = "ruby-#{SecureRandom.hex(4)}"
begin
  request = SubmitRequest.new(job_key: key, graph: graph(folder, rows))
  cluster.at_leader { |jobs, metadata| jobs.submit(request, metadata: metadata) }
  puts "#{key} is submitted"
  status = watch(cluster, key)
  abort "error: #{status.error}" unless status.state == :FINISHED
  found = Dir.glob(File.join(folder, "part-*")).flat_map { |file| File.readlines(file).map { |line| JSON.parse(line) } }
  puts "#{found.length} rows, #{found.uniq.length} of them different, #{status.restarts} restart#{"s" unless status.restarts == 1}"
rescue GRPC::BadStatus => error
  abort "error: #{error.details}"
end
